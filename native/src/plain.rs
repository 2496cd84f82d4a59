//! Links of a plain page, with their texts, as libxml2's HTML parser finds them: what Scrapy's LinkExtractor reads.
//!
//! The scanner accepts only what all releases of libxml2 and the HTML standard read alike. It gives up on any other
//! page, which then is parsed: a link with a paragraph or a table in it, an end tag that closes more than its own
//! element, an odd comment, an attribute without a space before it, a character reference without a semicolon.
//!
//! Fixed: what it returns. A test compares it with the parser.

use memchr::{memchr, memmem};

/// An `a` or `area` with an href.
pub struct PlainLink<'a> {
    pub href: String,
    pub text: String,
    pub rel: Option<&'a str>,
}

/// An `a` whose end tag has not come yet.
struct Open<'a> {
    link: PlainLink<'a>,
    /// Open elements in it, the innermost last.
    inside: Vec<&'a str>,
}

/// Most open elements. libxml2 ignores what is nested deeper than 256; elements that may have no end tag are not
/// counted, and each counted one may contain four of them.
const MAX_DEPTH: usize = 60;

/// Elements in a link that neither end it nor are ended by others. Their end tags must stand where they belong.
const INSIDE: &[&str] = &[
    "abbr",
    "article",
    "aside",
    "b",
    "bdi",
    "bdo",
    "cite",
    "code",
    "del",
    "div",
    "em",
    "figcaption",
    "figure",
    "font",
    "g",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "i",
    "ins",
    "kbd",
    "mark",
    "path",
    "picture",
    "q",
    "s",
    "samp",
    "section",
    "small",
    "span",
    "strong",
    "sub",
    "sup",
    "svg",
    "time",
    "tt",
    "u",
    "use",
    "var",
];
const HEADINGS: &[&str] = &["h1", "h2", "h3", "h4", "h5", "h6"];
const VOID: &[&str] = &["br", "img", "source", "wbr"];
const NOT_COUNTED: &[&str] = &[
    "area", "base", "br", "col", "dd", "dt", "hr", "img", "input", "li", "link", "meta", "option", "p", "source", "td",
    "th", "tr", "wbr",
];
/// References in texts that HTML 4 and the HTML standard define alike.
const NAMED: &[(&str, char)] = &[
    ("amp", '&'),
    ("lt", '<'),
    ("gt", '>'),
    ("quot", '"'),
    ("nbsp", '\u{a0}'),
    ("copy", '©'),
    ("reg", '®'),
    ("laquo", '«'),
    ("raquo", '»'),
    ("lsaquo", '‹'),
    ("rsaquo", '›'),
    ("lsquo", '‘'),
    ("rsquo", '’'),
    ("ldquo", '“'),
    ("rdquo", '”'),
    ("ndash", '–'),
    ("mdash", '—'),
    ("hellip", '…'),
    ("middot", '·'),
    ("bull", '•'),
    ("times", '×'),
    ("trade", '™'),
    ("para", '¶'),
    ("larr", '←'),
    ("rarr", '→'),
];

/// Return the links of a page. None: the page is not plain.
pub fn plain_links(page: &str) -> Option<Vec<PlainLink<'_>>> {
    if memchr(0, page.as_bytes()).is_some() {
        return None;
    }
    let mut scanner = Scanner {
        page,
        data: page.as_bytes(),
        at: 0,
        found: Vec::new(),
        open: None,
        depth: 0,
        has_tags: false,
        is_over: false,
    };
    scanner.run()?;
    scanner.open.is_none().then_some(scanner.found)
}

struct Scanner<'a> {
    page: &'a str,
    data: &'a [u8],
    at: usize,
    found: Vec<PlainLink<'a>>,
    open: Option<Open<'a>>,
    depth: usize,
    /// A tag has come.
    has_tags: bool,
    /// The end tag of `body` or `html` has come, behind which libxml2 may drop elements.
    is_over: bool,
}

/// What of a start tag matters.
#[derive(Default)]
struct Tag<'a> {
    href: Option<&'a str>,
    rel: Option<&'a str>,
    has_bare_href: bool,
    closes_itself: bool,
}

impl<'a> Scanner<'a> {
    /// Read the page. None: it is not plain.
    fn run(&mut self) -> Option<()> {
        while let Some(offset) = memchr(b'<', &self.data[self.at..]) {
            let start = self.at + offset;
            if let Some(open) = &mut self.open {
                append_text(&self.page[self.at..start], &mut open.link.text)?;
            }
            self.at = start + 1;
            match self.data.get(start + 1)? {
                b'!' => self.declaration()?,
                b'/' => self.end_tag()?,
                byte if byte.is_ascii_alphabetic() => self.start_tag()?,
                _ => return None,
            }
        }
        Some(())
    }

    fn declaration(&mut self) -> Option<()> {
        let rest = &self.data[self.at..];
        if rest.starts_with(b"!--") {
            let text = &rest[3..];
            let end = memmem::find(text, b"-->")?;
            let comment = &text[..end];
            if memmem::find(comment, b"--").is_some()
                || comment.ends_with(b"-")
                || comment.starts_with(b">")
                || comment.starts_with(b"->")
            {
                return None;
            }
            self.at += 3 + end + 3;
            return Some(());
        }
        let end = memchr(b'>', rest)?;
        if self.has_tags
            || end < 8
            || !rest[1..8].eq_ignore_ascii_case(b"doctype")
            || memchr(b'<', &rest[..end]).is_some()
        {
            return None;
        }
        self.at += end + 1;
        Some(())
    }

    /// Read the name at the current position, in lower case if it is short.
    fn name(&mut self, lower: &mut [u8; 16]) -> Option<usize> {
        let rest = &self.data[self.at..];
        let length = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'-').count();
        self.at += length;
        if length > lower.len() {
            return Some(0); // no name that matters
        }
        for (to, from) in lower.iter_mut().zip(&rest[..length]) {
            *to = from.to_ascii_lowercase();
        }
        Some(length)
    }

    fn end_tag(&mut self) -> Option<()> {
        self.at += 1;
        if !self.data.get(self.at)?.is_ascii_alphabetic() {
            return None;
        }
        let mut lower = [0u8; 16];
        let length = self.name(&mut lower)?;
        let name = std::str::from_utf8(&lower[..length]).ok()?;
        self.skip_spaces();
        if self.data.get(self.at) != Some(&b'>') {
            return None;
        }
        self.at += 1;
        match &mut self.open {
            Some(open) => {
                if name == "a" {
                    if !open.inside.is_empty() {
                        return None;
                    }
                    let closed = self.open.take()?;
                    self.found.push(closed.link);
                } else if open.inside.pop() != Some(name_in(INSIDE, name)?) {
                    return None;
                }
            }
            None => self.is_over |= name == "body" || name == "html",
        }
        if !NOT_COUNTED.contains(&name) {
            self.depth = self.depth.saturating_sub(1);
        }
        Some(())
    }

    fn start_tag(&mut self) -> Option<()> {
        self.has_tags = true;
        let mut lower = [0u8; 16];
        let length = self.name(&mut lower)?;
        let name = std::str::from_utf8(&lower[..length]).ok()?;
        let tag = self.attributes()?;
        match name {
            "a" | "area" => return self.link(name, &tag),
            "script" | "style" => return self.skip_raw(name, &tag, false),
            "title" | "textarea" | "iframe" => return self.skip_raw(name, &tag, true),
            "xmp" | "plaintext" | "listing" | "noembed" | "noframes" | "frameset" => return None,
            _ => {}
        }
        if let Some(open) = &mut self.open {
            if VOID.contains(&name) {
                return Some(());
            }
            let inside = name_in(INSIDE, name)?;
            let is_heading = HEADINGS.contains(&inside);
            if is_heading && open.inside.iter().any(|outer| HEADINGS.contains(outer)) {
                return None;
            }
            if tag.closes_itself {
                // Some releases leave the element open. The next end tag then closes it, too, but not a `div`.
                return (inside != "div").then_some(());
            }
            open.inside.push(inside);
        }
        if !NOT_COUNTED.contains(&name) && !tag.closes_itself {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return None;
            }
        }
        Some(())
    }

    fn link(&mut self, name: &str, tag: &Tag<'a>) -> Option<()> {
        if self.open.is_some() || self.is_over || tag.has_bare_href || (name == "a" && tag.closes_itself) {
            return None;
        }
        if name == "a" {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return None;
            }
        }
        let Some(raw) = tag.href else { return Some(()) };
        let link = PlainLink { href: attribute(raw)?, text: String::new(), rel: tag.rel };
        if tag.rel.is_some_and(|rel| rel.bytes().any(|byte| byte == b'&' || byte == b'\r')) {
            return None;
        }
        if name == "a" {
            self.open = Some(Open { link, inside: Vec::new() });
        } else {
            self.found.push(link);
        }
        Some(())
    }

    /// Pass an element whose text has no tags. `simple`: releases differ in what they read, so it must have no `<`.
    fn skip_raw(&mut self, name: &str, tag: &Tag<'a>, simple: bool) -> Option<()> {
        if self.open.is_some() || tag.closes_itself {
            return None;
        }
        let rest = &self.data[self.at..];
        let mut from = 0;
        loop {
            let start = from + memchr(b'<', &rest[from..])?;
            let after = &rest[start + 1..];
            if after.starts_with(b"!--") {
                return None;
            }
            if after.first() == Some(&b'/')
                && after.get(1..=name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name.as_bytes()))
            {
                self.at += start + 2 + name.len();
                self.skip_spaces();
                if self.data.get(self.at) != Some(&b'>') {
                    return None;
                }
                self.at += 1;
                return Some(());
            }
            if simple {
                return None;
            }
            from = start + 1;
        }
    }

    fn skip_spaces(&mut self) {
        while self.data.get(self.at).is_some_and(|byte| is_space(*byte)) {
            self.at += 1;
        }
    }

    /// Read the attributes of a start tag, and its end.
    fn attributes(&mut self) -> Option<Tag<'a>> {
        let mut tag = Tag::default();
        loop {
            let before = self.at;
            self.skip_spaces();
            match self.data.get(self.at)? {
                b'>' => {
                    self.at += 1;
                    return Some(tag);
                }
                b'/' => {
                    tag.closes_itself = true;
                    self.at += 2;
                    return (self.data.get(self.at - 1) == Some(&b'>')).then_some(tag);
                }
                byte if self.at > before && (byte.is_ascii_alphabetic() || *byte == b'_') => {}
                _ => return None,
            }
            let start = self.at;
            while self.data.get(self.at).is_some_and(|byte| is_in_name(*byte)) {
                self.at += 1;
            }
            let name = &self.data[start..self.at];
            let value = self.value()?;
            if name.eq_ignore_ascii_case(b"href") {
                if value.is_none() {
                    tag.has_bare_href = true;
                }
                tag.href = tag.href.or(value);
            } else if name.eq_ignore_ascii_case(b"rel") {
                tag.rel = tag.rel.or(Some(value?));
            }
        }
    }

    /// Read the value of an attribute. Some(None): it has none.
    fn value(&mut self) -> Option<Option<&'a str>> {
        let end_of_name = self.at;
        self.skip_spaces();
        if self.data.get(self.at) != Some(&b'=') {
            self.at = end_of_name;
            return match self.data.get(self.at)? {
                byte if is_space(*byte) || *byte == b'>' || *byte == b'/' => Some(None),
                _ => None,
            };
        }
        self.at += 1;
        self.skip_spaces();
        let quote = *self.data.get(self.at)?;
        if quote == b'"' || quote == b'\'' {
            let start = self.at + 1;
            let length = memchr(quote, &self.data[start..])?;
            self.at = start + length + 1;
            return Some(Some(&self.page[start..start + length]));
        }
        let start = self.at;
        while self.data.get(self.at).is_some_and(|byte| is_in_value(*byte)) {
            self.at += 1;
        }
        let value = &self.page[start..self.at];
        let next = *self.data.get(self.at)?;
        let is_plain = !value.is_empty() && !value.ends_with('/') && (is_space(next) || next == b'>');
        is_plain.then_some(Some(value))
    }
}

/// Return the same name from a list, which lives longer.
fn name_in(names: &'static [&'static str], name: &str) -> Option<&'static str> {
    names.iter().find(|one| **one == name).copied()
}

/// White space that all releases take as such. Others end the scan as an odd byte.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn is_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b':' | b'.')
}

/// A character of an unquoted value.
fn is_in_value(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_:.~!$&()*+,;@%/?#=".contains(&byte)
}

/// Return the value of an attribute with its references decoded.
fn attribute(raw: &str) -> Option<String> {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = memchr(b'&', rest.as_bytes()) {
        append_plain(&rest[..at], &mut out)?;
        rest = &rest[at..];
        let bytes = rest.as_bytes();
        match bytes.get(1) {
            Some(b'#') => rest = &rest[number(rest, &mut out)?..],
            Some(byte) if byte.is_ascii_alphanumeric() => {
                let length = bytes[1..].iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
                match bytes.get(1 + length) {
                    Some(b'=') => {
                        out.push_str(&rest[..1 + length]);
                        rest = &rest[1 + length..];
                    }
                    Some(b';') if &rest[1..1 + length] == "amp" => {
                        out.push('&');
                        rest = &rest[2 + length..];
                    }
                    _ => return None,
                }
            }
            _ => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    append_plain(rest, &mut out)?;
    Some(out)
}

/// Append text with its references decoded.
fn append_text(raw: &str, out: &mut String) -> Option<()> {
    let mut rest = raw;
    while let Some(at) = memchr(b'&', rest.as_bytes()) {
        append_plain(&rest[..at], out)?;
        rest = &rest[at..];
        match rest.as_bytes().get(1) {
            Some(b'#') => rest = &rest[number(rest, out)?..],
            Some(b' ' | b'\n') => {
                out.push('&');
                rest = &rest[1..];
            }
            _ => {
                let end = memchr(b';', rest.as_bytes())?;
                let (_, character) = NAMED.iter().find(|(name, _)| *name == &rest[1..end])?;
                out.push(*character);
                rest = &rest[end + 1..];
            }
        }
    }
    append_plain(rest, out)
}

/// Append text without references. None: it has a character that a parser may drop or change.
fn append_plain(text: &str, out: &mut String) -> Option<()> {
    let is_odd = |byte: u8| byte < 0x20 && byte != b'\t' && byte != b'\n';
    if text.bytes().any(is_odd) || (!text.is_ascii() && text.contains(['\u{fffe}', '\u{ffff}'])) {
        return None;
    }
    out.push_str(text);
    Some(())
}

/// Append the character of a numeric reference, and return its length.
fn number(text: &str, out: &mut String) -> Option<usize> {
    let end = memchr(b';', text.as_bytes())?;
    let digits = &text[2..end];
    let code = match digits.strip_prefix(['x', 'X']) {
        Some(hexadecimal) if hexadecimal.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u32::from_str_radix(hexadecimal, 16).ok()?
        }
        None if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok()?,
        _ => return None,
    };
    // Others are control characters, or what old pages mean by them.
    if !matches!(code, 0x20..=0x7e | 0xa0..=0xfffd) {
        return None;
    }
    out.push(char::from_u32(code)?);
    Some(end + 1)
}
