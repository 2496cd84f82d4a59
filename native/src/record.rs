//! Records with the bodies of pages as JSON. A body goes from the bytes that were received to the line of its record in
//! one pass, without a Python text of it. `encode_lines` in `gossamer/sinks/jsonl.py` is the reference: tests compare.

use json_escape_simd::escape_into;
use memchr::{memchr, memmem};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

/// The empty field that a body is put into. Before it, a record has texts, whose quotes are escaped, and headers, whose
/// values are lists also for a header `body`. So the first occurrence in a line is the field.
const FIELD: &[u8] = b",\"body\":\"\"";
/// Length of the value that a body replaces.
const EMPTY: usize = 2;

/// Return the lines of records with these bodies in their empty field `body`. Raises ValueError for a line without that
/// field, and for a body that is no UTF-8.
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
    put.map(|text| PyBytes::new(py, &text))
        .ok_or_else(|| PyValueError::new_err("a line has no place for its body, or the body is no UTF-8"))
}

fn put(lines: &[u8], bodies: &[Option<&[u8]>]) -> Option<Vec<u8>> {
    // An estimate of what escapes add, so that the text seldom moves while it grows.
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
                let end = finder.find(line)? + FIELD.len();
                out.extend_from_slice(&line[..end - EMPTY]);
                escape_into(std::str::from_utf8(body).ok()?, &mut out);
                out.extend_from_slice(&line[end..]);
            }
        }
    }
    if !rest.is_empty() {
        return None;
    }
    Some(out)
}

/// Return whether bytes are valid UTF-8.
#[pyfunction]
pub fn is_utf8(data: &Bound<'_, PyBytes>) -> bool {
    std::str::from_utf8(data.as_bytes()).is_ok()
}
