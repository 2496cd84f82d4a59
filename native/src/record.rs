//! Records with the bodies of pages as JSON. A body goes from the bytes that were received to the line of its record in
//! one pass, without a Python text of it. `encode_lines` in `gossamer/sinks/jsonl.py` is the reference: tests compare.

use memchr::{memchr, memmem};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

/// The field that a body is put into. Before it, a record has no other field of this name with a text, and in a text
/// quotes are escaped, so the first occurrence in a line is the field.
const FIELD: &[u8] = b",\"body\":\"";

/// Return the lines of records with these bodies in their empty field `body`.
///
/// `lines`: JSON with a newline behind each record. `bodies`: for each line the body in UTF-8, or None for a line that
/// stays as it is.
#[pyfunction]
pub fn put_bodies<'py>(
    py: Python<'py>,
    lines: &Bound<'py, PyBytes>,
    bodies: &Bound<'py, PyList>,
) -> PyResult<Bound<'py, PyBytes>> {
    let kept: Vec<Option<Bound<'py, PyBytes>>> = bodies.iter().map(|body| body.extract()).collect::<PyResult<_>>()?;
    let texts: Vec<Option<&[u8]>> = kept.iter().map(|body| body.as_ref().map(|bytes| bytes.as_bytes())).collect();
    let lines = lines.as_bytes();
    let put = py.detach(|| put(lines, &texts));
    put.map(|text| PyBytes::new(py, &text)).ok_or_else(|| PyValueError::new_err("a line has no place for its body"))
}

fn put(lines: &[u8], bodies: &[Option<&[u8]>]) -> Option<Vec<u8>> {
    let size: usize = bodies.iter().flatten().map(|body| body.len()).sum();
    let mut out = Vec::with_capacity(lines.len() + size + size / 8 + 64);
    let finder = memmem::Finder::new(FIELD);
    let mut rest = lines;
    for body in bodies {
        let end = memchr(b'\n', rest)? + 1;
        let (line, following) = rest.split_at(end);
        rest = following;
        match body {
            None => out.extend_from_slice(line),
            Some(body) => {
                let at = finder.find(line)? + FIELD.len();
                if line.get(at) != Some(&b'"') {
                    return None;
                }
                out.extend_from_slice(&line[..at]);
                escape(body, &mut out);
                out.extend_from_slice(&line[at..]);
            }
        }
    }
    if !rest.is_empty() {
        return None;
    }
    Some(out)
}

const LANES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Return a word whose lowest set bit is in the first of these eight bytes that JSON escapes; 0 if there is none. Higher
/// bits may be wrong.
#[inline(always)]
fn special(word: u64) -> u64 {
    let zero = |word: u64| word.wrapping_sub(LANES) & !word;
    let control = word.wrapping_sub(LANES * 0x20) & !word;
    (control | zero(word ^ (LANES * 0x22)) | zero(word ^ (LANES * 0x5c))) & HIGH
}

/// Append UTF-8 as the contents of a JSON string, as msgspec writes it.
fn escape(text: &[u8], out: &mut Vec<u8>) {
    let mut start = 0;
    let mut at = 0;
    while at < text.len() {
        let byte = if let Some(eight) = text.get(at..at + 8) {
            let found = special(u64::from_le_bytes(eight.try_into().expect("eight bytes")));
            if found == 0 {
                at += 8;
                continue;
            }
            at += found.trailing_zeros() as usize / 8;
            text[at]
        } else {
            let byte = text[at];
            if byte >= 0x20 && byte != b'"' && byte != b'\\' {
                at += 1;
                continue;
            }
            byte
        };
        out.extend_from_slice(&text[start..at]);
        let short = match byte {
            b'"' => b'"',
            b'\\' => b'\\',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x08 => b'b',
            0x0c => b'f',
            _ => 0,
        };
        if short != 0 {
            out.extend_from_slice(&[b'\\', short]);
        } else {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', HEX[byte as usize >> 4], HEX[byte as usize & 15]]);
        }
        at += 1;
        start = at;
    }
    out.extend_from_slice(&text[start..]);
}

/// Return whether bytes are valid UTF-8.
#[pyfunction]
pub fn is_utf8(data: &Bound<'_, PyBytes>) -> bool {
    std::str::from_utf8(data.as_bytes()).is_ok()
}
