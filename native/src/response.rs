//! Heads of responses as nearly all servers send them. Others are left to llhttp and to `gossamer/fetch/response.py`,
//! which has the rules; tests compare both.

use memchr::memchr;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

/// A head: its length, status, reason, headers as a list of pairs, the same by name, values of Content-Encoding, length of
/// the body, and whether the connection may be kept.
type Head<'py> =
    (usize, u16, Bound<'py, PyString>, Bound<'py, PyList>, Bound<'py, PyDict>, Vec<Bound<'py, PyString>>, u64, bool);

/// Read the head at the beginning of `data`. None: there is no whole one, it has more than `max_bytes` or `max_headers`, or
/// anything in it is not as simple as here: HTTP/1.1, a final status with a body, lines that end with CRLF, one
/// Content-Length, at most one Content-Type, no Transfer-Encoding or X-Robots-Tag, a Connection that is `keep-alive` or
/// `close`.
#[pyfunction]
pub fn read_head<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyBytes>,
    max_bytes: usize,
    max_headers: usize,
) -> PyResult<Option<Head<'py>>> {
    let data = data.as_bytes();
    let Some((mut at, status, reason)) = status_line(data) else { return Ok(None) };
    let headers = PyList::empty(py);
    let by_name = PyDict::new(py);
    let mut encodings = Vec::new();
    let mut length = None;
    let mut keep = true;
    let mut has_type = false;
    let mut count = 0;
    loop {
        let Some(line) = line_at(data, at) else { return Ok(None) };
        at += line.len() + 2;
        if line.is_empty() {
            break;
        }
        count += 1;
        if count > max_headers {
            return Ok(None);
        }
        let Some(colon) = memchr(b':', line) else { return Ok(None) };
        let (name, value) = (&line[..colon], trim(&line[colon + 1..]));
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) || !value.iter().all(|byte| is_in_value(*byte)) {
            return Ok(None);
        }
        let value_text = latin1(py, value);
        match name.len() {
            6 if name.eq_ignore_ascii_case(b"trailer") => return Ok(None),
            7 if name.eq_ignore_ascii_case(b"upgrade") => return Ok(None),
            12 if name.eq_ignore_ascii_case(b"content-type") => {
                if has_type {
                    return Ok(None);
                }
                has_type = true;
            }
            12 if name.eq_ignore_ascii_case(b"x-robots-tag") => return Ok(None),
            10 if name.eq_ignore_ascii_case(b"connection") => {
                if value.eq_ignore_ascii_case(b"close") {
                    keep = false;
                } else if !value.eq_ignore_ascii_case(b"keep-alive") {
                    return Ok(None);
                }
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                if length.is_some() || value.is_empty() || value.len() > 15 || !value.iter().all(u8::is_ascii_digit) {
                    return Ok(None);
                }
                length = Some(value.iter().fold(0u64, |sum, digit| sum * 10 + u64::from(digit - b'0')));
            }
            16 if name.eq_ignore_ascii_case(b"content-encoding") => encodings.push(value_text.clone()),
            16 if name.eq_ignore_ascii_case(b"proxy-connection") => return Ok(None),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => return Ok(None),
            _ => {}
        }
        let name_text = latin1(py, name);
        match by_name.get_item(&name_text)? {
            Some(values) => values.cast_into::<PyList>()?.append(&value_text)?,
            None => by_name.set_item(&name_text, PyList::new(py, [&value_text])?)?,
        }
        headers.append((name_text, value_text))?;
    }
    match length {
        Some(length) if at <= max_bytes => {
            Ok(Some((at, status, latin1(py, reason), headers, by_name, encodings, length, keep)))
        }
        _ => Ok(None),
    }
}

/// Return the end of the status line, the status, and the reason.
fn status_line(data: &[u8]) -> Option<(usize, u16, &[u8])> {
    let line = line_at(data, 0)?;
    let rest = line.strip_prefix(b"HTTP/1.1 ")?;
    if rest.len() < 4 || rest[3] != b' ' || !rest[..3].iter().all(u8::is_ascii_digit) {
        return None;
    }
    let status = rest[..3].iter().fold(0u16, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    let reason = &rest[4..];
    if !(200..600).contains(&status)
        || matches!(status, 204 | 205 | 304)
        || !reason.iter().all(|byte| is_in_value(*byte))
    {
        return None;
    }
    Some((line.len() + 2, status, reason))
}

/// Return the line that begins here, without its CRLF. None: it has no end yet, or ends otherwise.
fn line_at(data: &[u8], at: usize) -> Option<&[u8]> {
    let rest = data.get(at..)?;
    let end = memchr(b'\n', rest)?;
    let line = rest[..end].strip_suffix(b"\r")?;
    if memchr(b'\r', line).is_some() {
        return None;
    }
    Some(line)
}

fn trim(value: &[u8]) -> &[u8] {
    let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let start = value.iter().position(|byte| !blank(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !blank(byte)).map_or(start, |last| last + 1);
    &value[start..end]
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_in_value(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

fn latin1<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.is_ascii() => PyString::new(py, text),
        _ => PyString::new(py, &bytes.iter().map(|byte| char::from(*byte)).collect::<String>()),
    }
}
