//! Decodes attribute values: character references, NUL and line ends, as the tokenizer of the HTML standard does.
//!
//! Fixed: the result, which the standard defines ("named character reference state" and those after it).

use entities::ENTITIES;
use memchr::memchr3;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

/// Return the value of an attribute. Borrowed if nothing changes, as for most.
pub fn decode(raw: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr3(b'&', 0, b'\r', raw) else { return Cow::Borrowed(raw) };
    let mut out = Vec::with_capacity(raw.len() + 8);
    out.extend_from_slice(&raw[..first]);
    let mut at = first;
    while at < raw.len() {
        match raw[at] {
            b'&' => at += reference(&raw[at..], &mut out),
            0 => {
                out.extend_from_slice("\u{fffd}".as_bytes());
                at += 1;
            }
            b'\r' => {
                out.push(b'\n');
                at += if raw.get(at + 1) == Some(&b'\n') { 2 } else { 1 };
            }
            _ => {
                let end = memchr3(b'&', 0, b'\r', &raw[at..]).map_or(raw.len(), |offset| at + offset);
                out.extend_from_slice(&raw[at..end]);
                at = end;
            }
        }
    }
    Cow::Owned(out)
}

/// Append what the reference at the beginning of `text` stands for, or its `&`. Return the number of bytes read.
fn reference(text: &[u8], out: &mut Vec<u8>) -> usize {
    let read = match text.get(1) {
        Some(b'#') => number(text, out),
        Some(byte) if byte.is_ascii_alphanumeric() => name(text, out),
        _ => 0,
    };
    if read == 0 {
        out.push(b'&');
        return 1;
    }
    read
}

fn name(text: &[u8], out: &mut Vec<u8>) -> usize {
    let length = text[1..].iter().take(MAX_NAME).take_while(|byte| byte.is_ascii_alphanumeric()).count();
    let end = 1 + length;
    let closed = text.get(end) == Some(&b';');
    // A name without semicolon that is followed by `=` or a letter stays text in an attribute.
    if !closed && (text.get(end) == Some(&b'=') || text.get(end).is_some_and(u8::is_ascii_alphanumeric)) {
        return 0;
    }
    let end = end + usize::from(closed);
    let names = names();
    if let Some(characters) = names.get(&text[..end]) {
        out.extend_from_slice(characters.as_bytes());
        return end;
    }
    0
}

fn number(text: &[u8], out: &mut Vec<u8>) -> usize {
    let hexadecimal = matches!(text.get(2), Some(b'x' | b'X'));
    let (start, radix) = if hexadecimal { (3, 16) } else { (2, 10) };
    let mut at = start;
    let mut value: u32 = 0;
    while let Some(digit) = text.get(at).and_then(|byte| (*byte as char).to_digit(radix)) {
        value = value.saturating_mul(radix).saturating_add(digit).min(0x11_0000);
        at += 1;
    }
    if at == start {
        return 0;
    }
    if text.get(at) == Some(&b';') {
        at += 1;
    }
    let value = if (0x80..0xa0).contains(&value) { WINDOWS_1252[value as usize - 0x80] } else { value };
    let character = if value == 0 { '\u{fffd}' } else { char::from_u32(value).unwrap_or('\u{fffd}') };
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    at
}

/// Longest name of a reference. Fixed by the standard's list.
const MAX_NAME: usize = 40;

fn names() -> &'static HashMap<&'static [u8], &'static str> {
    static NAMES: OnceLock<HashMap<&'static [u8], &'static str>> = OnceLock::new();
    NAMES.get_or_init(|| ENTITIES.iter().map(|entity| (entity.entity.as_bytes(), entity.characters)).collect())
}

/// Characters that the numbers from 128 to 159 stand for (HTML standard, "numeric character reference end state").
const WINDOWS_1252: [u32; 32] = [
    0x20ac, 0x81, 0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160, 0x2039, 0x0152, 0x8d, 0x017d,
    0x8f, 0x90, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014, 0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0x9d,
    0x017e, 0x0178,
];
