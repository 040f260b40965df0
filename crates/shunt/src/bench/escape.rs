//! Escapes text for HTML.

use crate::text::printable;

/// Text in HTML. Paths may contain any character.
pub fn escape(text: &str) -> String {
    let text = printable(text);
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    #[test]
    fn paths_are_text() {
        assert_eq!(super::escape("/a<b>&\"'\n"), "/a&lt;b&gt;&amp;&quot;&#39;\\n");
    }
}
