//! Bounded memory of hrefs that were resolved on a site before. `gossamer/extract/memory.py` is the reference and says
//! which hrefs are remembered, and where; a crawl uses one of the two.
//!
//! Fixed: where an href is remembered, or a page that links to it would never be fetched.

use crate::urls::Base;
use pyo3::prelude::*;
use std::collections::hash_map::RandomState;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::OnceLock;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What became of an href. The names are those of the statistics: fixed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Outcome {
    Known,
    Offsite,
    Extension,
    AllowRegex,
    DenyRegex,
    Scheme,
    TooLong,
    BadUrl,
}

pub const OUTCOMES: usize = 8;

impl Outcome {
    pub const ALL: [Outcome; OUTCOMES] = [
        Outcome::Known,
        Outcome::Offsite,
        Outcome::Extension,
        Outcome::AllowRegex,
        Outcome::DenyRegex,
        Outcome::Scheme,
        Outcome::TooLong,
        Outcome::BadUrl,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Outcome::Known => "known",
            Outcome::Offsite => "offsite",
            Outcome::Extension => "extension",
            Outcome::AllowRegex => "allow_regex",
            Outcome::DenyRegex => "deny_regex",
            Outcome::Scheme => "scheme",
            Outcome::TooLong => "too_long",
            Outcome::BadUrl => "bad_url",
        }
    }

    pub fn of(name: &str) -> Option<Outcome> {
        Outcome::ALL.into_iter().find(|outcome| outcome.name() == name)
    }
}

/// Hashes by XXH3 with a key that each process draws, so that no page can be crafted whose hrefs have one hash: to look
/// them all up would take minutes.
#[derive(Default)]
pub struct TextHasher(u64);

fn hash_key() -> u64 {
    static KEY: OnceLock<u64> = OnceLock::new();
    *KEY.get_or_init(|| RandomState::new().build_hasher().finish())
}

/// Return the hash of a text, for tests.
#[pyfunction]
pub fn text_hash(text: &str) -> u64 {
    BuildTextHasher::default().hash_one(text)
}

impl Hasher for TextHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = self.0.rotate_left(5) ^ xxh3_64_with_seed(bytes, hash_key());
    }

    fn write_u8(&mut self, value: u8) {
        self.0 ^= u64::from(value);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

pub type BuildTextHasher = BuildHasherDefault<TextHasher>;

const MAX_HREF: usize = 512;
const HREF_BYTES: usize = 64;
const PLACE_BYTES: usize = 300;

type Outcomes = HashMap<Box<str>, Outcome, BuildTextHasher>;

#[derive(Default)]
struct Place {
    outcomes: Outcomes,
    bytes: usize,
    used: u64,
    /// Hrefs that mean the same everywhere.
    anywhere: bool,
}

/// The three places in which hrefs of one document may be remembered.
pub struct Keys {
    pub anywhere: Box<str>,
    pub on_site: Box<str>,
    pub in_directory: Box<str>,
}

impl Keys {
    pub fn new(namespace: &str, base: &Base) -> Self {
        let key = |place: &str| format!("{namespace}\0{place}").into_boxed_str();
        Keys { anywhere: key(base.scheme), on_site: key(base.origin), in_directory: key(base.directory) }
    }
}

/// Outcomes in the three places of a document, which are looked up once for all its hrefs. None: nothing is remembered.
pub struct Remembered<'m> {
    anywhere: Option<&'m Outcomes>,
    on_site: Option<&'m Outcomes>,
    in_directory: Option<&'m Outcomes>,
}

impl Remembered<'_> {
    /// Return what became of an href in this document. None: that is not remembered.
    pub fn get(&self, href: &str) -> Option<Outcome> {
        let nearest = if href.starts_with('/') { self.on_site } else { self.in_directory };
        let at = |outcomes: Option<&Outcomes>| outcomes.and_then(|outcomes| outcomes.get(href)).copied();
        at(nearest).or_else(|| at(self.anywhere))
    }
}

/// Memory of about `max_bytes` for any number of extractors.
#[pyclass(module = "gossamer_native")]
pub struct Memory {
    places: HashMap<Box<str>, Place, BuildTextHasher>,
    max_bytes: usize,
    data_epoch: i64,
    clock: u64,
    #[pyo3(get)]
    bytes: usize,
}

#[pymethods]
impl Memory {
    #[new]
    #[pyo3(signature = (*, max_bytes = 16 * 1024 * 1024))]
    fn new(max_bytes: usize) -> Self {
        Memory { places: HashMap::default(), max_bytes, data_epoch: 0, clock: 0, bytes: 0 }
    }

    fn __len__(&self) -> usize {
        self.places.values().map(|place| place.outcomes.len()).sum()
    }

    /// Forget everything that was remembered in another data epoch.
    fn enter_data_epoch(&mut self, data_epoch: i64) {
        if data_epoch != self.data_epoch {
            self.data_epoch = data_epoch;
            self.places.clear();
            self.bytes = 0;
        }
    }
}

impl Memory {
    /// Make the places of these keys the most recently used ones, and return their outcomes.
    pub fn recall(&mut self, keys: &Keys) -> Remembered<'_> {
        self.clock += 1;
        for key in [&keys.anywhere, &keys.on_site, &keys.in_directory] {
            if let Some(place) = self.places.get_mut(key) {
                place.used = self.clock;
            }
        }
        let at = |key: &str| self.places.get(key).map(|place| &place.outcomes);
        Remembered { anywhere: at(&keys.anywhere), on_site: at(&keys.on_site), in_directory: at(&keys.in_directory) }
    }

    pub fn keep(&mut self, keys: &Keys, href: &str, outcome: Outcome) {
        let Some((key, anywhere)) = place_of(keys, href) else { return };
        if !self.places.contains_key(key) {
            self.places
                .insert(key.into(), Place { bytes: PLACE_BYTES, used: self.clock, anywhere, ..Place::default() });
            self.bytes += PLACE_BYTES;
        }
        let half = self.max_bytes / 2;
        let place = self.places.get_mut(key).expect("it was inserted above");
        if let Some(known) = place.outcomes.get_mut(href) {
            *known = outcome;
            return;
        }
        if place.anywhere && place.bytes >= half {
            self.bytes -= place.bytes - PLACE_BYTES;
            place.outcomes.clear();
            place.bytes = PLACE_BYTES;
        }
        let size = HREF_BYTES + href.len();
        place.outcomes.insert(href.into(), outcome);
        place.bytes += size;
        self.bytes += size;
        if self.bytes > self.max_bytes {
            place.used = self.clock + 1;
            self.forget();
        }
    }

    /// Forget the least recently used places, to nine tenths of the bound, so that this is done seldom.
    fn forget(&mut self) {
        let mut ages: Vec<(u64, Box<str>)> = self.places.iter().map(|(key, place)| (place.used, key.clone())).collect();
        ages.sort_unstable();
        for (_, key) in ages {
            if self.bytes <= self.max_bytes / 10 * 9 {
                break;
            }
            if let Some(place) = self.places.remove(&key) {
                self.bytes -= place.bytes;
            }
        }
    }
}

/// Return the place of an href, and whether that is the one of hrefs that mean the same everywhere. None: it is not
/// remembered.
fn place_of<'k>(keys: &'k Keys, href: &str) -> Option<(&'k str, bool)> {
    let bytes = href.as_bytes();
    let first = *bytes.first()?;
    if first <= b' ' || first == b'?' || bytes.iter().any(|byte| matches!(byte, b'\t' | b'\n' | b'\r')) {
        return None;
    }
    if bytes.len() > MAX_HREF && href.chars().count() > MAX_HREF {
        return None;
    }
    if first == b'/' {
        return Some(if href.starts_with("//") { (&keys.anywhere, true) } else { (&keys.on_site, false) });
    }
    if let Some((scheme, rest)) = href.split_once(':') {
        if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https") {
            return rest.starts_with("//").then_some((&*keys.anywhere, true));
        }
    }
    Some((&keys.in_directory, false))
}
