//! Replaces names in JSON. Numbers and words of the program stay.

use serde_json::{Map, Value};

use super::redactor::{NAME_FIELDS, Redactor};

/// Replaces the names in a value.
pub fn redact(redactor: &mut Redactor, value: Value) -> Value {
    in_field(redactor, "", value)
}

fn in_field(redactor: &mut Redactor, field: &str, value: Value) -> Value {
    match value {
        Value::String(text) if NAME_FIELDS.contains(&field) => Value::String(redactor.name(&text)),
        Value::String(text) => {
            let lines: Vec<String> = text.lines().map(|line| redactor.line(line)).collect();
            Value::String(lines.join("\n"))
        }
        Value::Array(values) => values.into_iter().map(|value| in_field(redactor, field, value)).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(key, value)| {
                let new = in_field(redactor, &key, value);
                let key = if redactor.is_harmless(&key) { key } else { redactor.name(&key) };
                (key, new)
            });
            Value::Object(fields.collect::<Map<_, _>>())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bugreport::vocabulary::Vocabulary;
    use serde_json::json;

    #[test]
    fn names_go_and_figures_stay() {
        let words =
            Vocabulary::of("name mountpoint requests lookup count reason passthrough off volume pinned");
        let value = json!({"mountpoint": "/mnt/off", "requests": {"lookup": {"count": 3}}, "reason": "passthrough off acme",
            "volume": {"name": "lookup", "pinned": ["a/b"], "Zorro": null}});
        let expected = json!({"mountpoint": "/mnt/name-1", "requests": {"lookup": {"count": 3}},
            "reason": "passthrough off name-2", "volume": {"name": "name-4", "pinned": ["name-5/name-6"], "name-3": null}});
        let redacted = redact(&mut Redactor::new(words), value);
        assert_eq!(redacted["mountpoint"], expected["mountpoint"]);
        assert_eq!(redacted["requests"], expected["requests"]);
        let text = redacted.to_string();
        assert!(
            !text.contains("Zorro") && !text.contains("acme") && !text.contains("\"lookup\",\""),
            "{text}"
        );
        assert!(redacted["volume"]["name"].as_str().unwrap().starts_with("name-"), "{text}");
    }
}
