//! XMP metadata: properties in XML.
//!
//! Attributes and elements that reveal a location become spaces, so that the document stays well-formed. Names are
//! compared without their prefix, which a file may choose freely.

use super::blank::Blank;

/// Properties that name a location, in addition to those that begin with `GPS`.
const LOCATION_PROPERTIES: [&str; 18] = [
    "City",
    "Country",
    "CountryCode",
    "CountryName",
    "Location",
    "LocationCreated",
    "LocationId",
    "LocationName",
    "LocationShown",
    "Province",
    "ProvinceState",
    "State",
    "Sublocation",
    "WorldRegion",
    "lat",
    "long",
    "lat_long",
    "alt_long",
];

fn is_location(name: &[u8]) -> bool {
    let local = name.rsplit(|byte| *byte == b':').next().unwrap_or_default();
    local.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(b"gps"))
        || LOCATION_PROPERTIES.iter().any(|property| local.eq_ignore_ascii_case(property.as_bytes()))
}

fn find(text: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    let rest = text.get(from..)?;
    rest.windows(what.len()).position(|window| window == what).map(|at| from + at)
}

/// Returns the ranges that reveal a location.
pub(super) fn blanks(text: &[u8]) -> Vec<Blank> {
    // With another encoding than one byte per ASCII character, or a document type with entities of its own, no part of
    // the text can be parsed reliably.
    let odd = text.iter().take(4096).any(|byte| *byte == 0) || find(text, 0, b"<!DOCTYPE").is_some();
    if odd || text.starts_with(b"\xfe\xff") || text.starts_with(b"\xff\xfe") {
        return vec![Blank::spaces(0..text.len())];
    }
    let mut scan = Scan { text, blanks: Vec::new(), location: None };
    let done = scan.run();
    let mut blanks = scan.blanks;
    // After an unclosed element or a malformed tag, the rest is blanked.
    if let Some(location) = scan.location {
        blanks.push(Blank::spaces(location.start..text.len()));
    }
    if let Err(at) = done {
        blanks.push(Blank::spaces(at..text.len()));
    }
    blanks
}

/// An open element that reveals a location.
struct Open<'a> {
    start: usize,
    name: &'a [u8],
    /// Nesting depth of elements with the same name.
    depth: usize,
}

struct Scan<'a> {
    text: &'a [u8],
    blanks: Vec<Blank>,
    location: Option<Open<'a>>,
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace()
}

fn is_name(byte: u8) -> bool {
    !is_space(byte) && !b"<>=/\"'?!".contains(&byte)
}

impl<'a> Scan<'a> {
    /// Scans the text; the error is the offset of the first malformed tag.
    fn run(&mut self) -> Result<(), usize> {
        let mut at = 0;
        while let Some(tag) = find(self.text, at, b"<") {
            let rest = &self.text[tag + 1..];
            let skip = |end: &[u8]| find(self.text, tag + 1, end).map(|found| found + end.len()).ok_or(tag);
            at = match rest {
                [b'?', ..] => skip(b"?>")?,
                [b'!', b'-', b'-', ..] => skip(b"-->")?,
                [b'!', b'[', ..] => skip(b"]]>")?,
                [b'/', ..] => {
                    let end = skip(b">")?;
                    self.close(self.name(tag + 2), end);
                    end
                }
                _ => self.tag(tag)?,
            };
        }
        Ok(())
    }

    fn name(&self, at: usize) -> &'a [u8] {
        let rest = &self.text[at.min(self.text.len())..];
        &rest[..rest.iter().position(|byte| !is_name(*byte)).unwrap_or(rest.len())]
    }

    fn spaces(&self, at: usize) -> usize {
        let rest = &self.text[at.min(self.text.len())..];
        at + rest.iter().position(|byte| !is_space(*byte)).unwrap_or(rest.len())
    }

    /// Parses a tag from its `<` on; returns its end.
    fn tag(&mut self, start: usize) -> Result<usize, usize> {
        let name = self.name(start + 1);
        if name.is_empty() {
            return Err(start);
        }
        let mut at = start + 1 + name.len();
        let mut attributes = Vec::new();
        let closed = loop {
            at = self.spaces(at);
            match &self.text[at..] {
                [b'>', ..] => break false,
                [b'/', b'>', ..] => break true,
                _ => {}
            }
            let from = at;
            let attribute = self.name(at);
            at = self.spaces(at + attribute.len());
            if attribute.is_empty() || self.text.get(at) != Some(&b'=') {
                return Err(start);
            }
            at = self.spaces(at + 1);
            let quote = match self.text.get(at) {
                Some(quote @ (b'"' | b'\'')) => *quote,
                _ => return Err(start),
            };
            at = find(self.text, at + 1, &[quote]).ok_or(start)? + 1;
            if is_location(attribute) {
                attributes.push(Blank::spaces(from..at));
            }
        };
        let end = at + if closed { 2 } else { 1 };
        match &mut self.location {
            Some(open) if open.name == name && !closed => open.depth += 1,
            Some(_) => {}
            None if is_location(name) && closed => self.blanks.push(Blank::spaces(start..end)),
            None if is_location(name) => self.location = Some(Open { start, name, depth: 0 }),
            None => self.blanks.extend(attributes),
        }
        Ok(end)
    }

    fn close(&mut self, name: &[u8], end: usize) {
        let Some(open) = self.location.as_mut().filter(|open| open.name == name) else { return };
        if open.depth > 0 {
            open.depth -= 1;
            return;
        }
        self.blanks.push(Blank::spaces(open.start..end));
        self.location = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::blank::blank;

    fn blanked(text: &str) -> String {
        let mut data = text.as_bytes().to_vec();
        let blanks = blanks(&data);
        blank(&mut data, &blanks);
        let text = String::from_utf8(data).unwrap();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn properties_of_locations_are_blanked() {
        for (text, left) in [
            ("<a exif:GPSLatitude='1' b='2'/>", "<a b='2'/>"),
            ("<x><exif:GPSLatitude>1</exif:GPSLatitude><y>2</y></x>", "<x> <y>2</y></x>"),
            ("<p:City/><z/>", "<z/>"),
            ("<q:LocationShown><rdf:Bag><q:City>A</q:City></rdf:Bag></q:LocationShown><z/>", "<z/>"),
            ("<e:gpslongitude>1</e:gpslongitude>k", "k"),
            ("<e:State a='>'><e:State>1</e:State></e:State>k", "k"),
            ("<x><City>1", "<x>"),
            ("<x/><y City='1", "<x/>"),
            ("<?xpacket begin='<City>'?><x/>", "<?xpacket begin='<City>'?><x/>"),
            ("<x Urgency='1'>City</x>", "<x Urgency='1'>City</x>"),
        ] {
            assert_eq!(blanked(text), left, "{text}");
        }
    }

    #[test]
    fn ambiguous_text_is_blanked() {
        assert_eq!(blanked("<!DOCTYPE a [<!ENTITY x 'y'>]><a/>"), "");
        assert_eq!(blanked("<\0a\0>\0"), "");
    }
}
