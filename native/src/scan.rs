//! Reads the links of a page without building a tree.
//!
//! The scanner follows the tokenizer of the HTML standard (https://html.spec.whatwg.org/multipage/parsing.html) as far
//! as links need it: tags, attributes and their character references, comments, text in which tags do not count
//! (scripts, styles, text areas), and what drawings and formulas (`svg`, `math`) change. Of tree construction it knows
//! what hides or reveals a link: templates, framesets, and where a drawing ends. It never moves back in the page but for
//! one look at a comment's end, so its time is proportional to the page's length, and it keeps nothing but the links.
//!
//! Fixed: which links it finds; the Python reference (`gossamer/extract/links.py`) must find the same ones, and tests
//! compare both.

use crate::references::decode;
use memchr::{memchr, memchr2, memchr_iter, memmem};
use std::borrow::Cow;

/// An `a` or `area` with an href, or an `iframe` or `frame` with a src.
pub struct Anchor<'a> {
    /// The href or src with its character references decoded, otherwise as written.
    pub href: Cow<'a, [u8]>,
    /// `rel` has the word `nofollow`.
    pub nofollow: bool,
}

/// What a page says about its links.
#[derive(Default)]
pub struct Scan<'a> {
    /// In document order.
    pub anchors: Vec<Anchor<'a>>,
    /// Hrefs of `link rel=next`.
    pub nexts: Vec<Cow<'a, [u8]>>,
    /// `content` of each meta refresh, whose target is not read here.
    pub refreshes: Vec<Cow<'a, [u8]>>,
    /// Href of the first `base` that has one.
    pub base: Option<Cow<'a, [u8]>>,
    /// `meta name=robots` says `nofollow` or `none`.
    pub nofollow: bool,
    /// `meta name=robots` says `noindex` or `none`.
    pub noindex: bool,
}

/// Elements whose start tag changes how the following text is read.
#[derive(Clone, Copy, PartialEq)]
enum Raw {
    Script,
    /// Ends at its own end tag: style, textarea, title, xmp, iframe, noembed, noframes.
    Text,
    /// Never ends: plaintext.
    Rest,
}

/// An open element of a drawing or formula.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Foreign,
    /// In it, elements are those of HTML again: svg's `foreignObject`, `desc`, `title`; math's `mi` and others.
    HtmlInside,
}

struct Open<'a> {
    name: &'a [u8],
    kind: Kind,
    math: bool,
}

/// Most elements of drawings whose names are remembered; deeper ones are only counted. An end tag is compared with all
/// of them.
const MAX_OPEN: usize = 128;

/// How often a page is looked through for an open element. Each look takes as long as the page does.
const MAX_LOOKS: u8 = 16;

/// Values of the attributes that links need. The first attribute of a name counts, as in the standard; an attribute
/// without a value counts as empty, except that an `href` without a value is none.
#[derive(Default)]
struct Attributes<'a> {
    href: Seen<'a>,
    /// Stands for `href` in drawings and formulas.
    xlink_href: Seen<'a>,
    rel: Seen<'a>,
    src: Seen<'a>,
    srcdoc: Seen<'a>,
    name: Seen<'a>,
    content: Seen<'a>,
    http_equiv: Seen<'a>,
    encoding: Seen<'a>,
    /// `color`, `face` or `size`, which make a `font` leave a drawing.
    is_font: bool,
}

#[derive(Default, Clone, Copy)]
enum Seen<'a> {
    #[default]
    Absent,
    NoValue,
    Value(&'a [u8]),
}

impl<'a> Seen<'a> {
    fn set(&mut self, value: Option<&'a [u8]>) {
        if let Seen::Absent = self {
            *self = value.map_or(Seen::NoValue, Seen::Value);
        }
    }

    fn get(self) -> Option<&'a [u8]> {
        match self {
            Seen::Value(value) => Some(value),
            _ => None,
        }
    }
}

/// Return the links of a page in UTF-8 (invalid bytes are allowed).
pub fn scan(data: &[u8]) -> Scan<'_> {
    scan_document(data, Place::Page)
}

/// Return the links of a page, or of a document inside of one.
fn scan_document(data: &[u8], place: Place) -> Scan<'_> {
    let mut scanner = Scanner {
        data,
        at: 0,
        place,
        found: Scan::default(),
        open: Vec::new(),
        deeper: 0,
        drawing_start: 0,
        looks: MAX_LOOKS,
        head: None,
        templates: 0,
        frames: Frames::Possible,
        framesets: 0,
    };
    scanner.run();
    scanner.found
}

/// Where a document stands. In `noframes` no further one is read, in `srcdoc` neither, so that nothing recurs.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Page,
    Noframes,
    Srcdoc,
}

/// Whether the page is a frameset: a page of frames, in which nothing but frames counts.
#[derive(PartialEq)]
enum Frames {
    /// Nothing has come yet that makes a frameset impossible.
    Possible,
    No,
    Yes,
}

/// What the head of a page says.
struct Head {
    anchors: usize,
    nexts: usize,
    refreshes: usize,
    has_base: bool,
    nofollow: bool,
    noindex: bool,
}

struct Scanner<'a> {
    data: &'a [u8],
    at: usize,
    place: Place,
    found: Scan<'a>,
    /// Open elements of drawings and formulas, the innermost last.
    open: Vec<Open<'a>>,
    /// Number of open elements inside of these, whose names are not remembered.
    deeper: usize,
    /// Position of the outermost drawing that is open.
    drawing_start: usize,
    /// How often `is_open_in_html` may still look through the page.
    looks: u8,
    /// What was found before the body began. None: it has not begun, or the page is no frameset.
    head: Option<Head>,
    templates: usize,
    frames: Frames,
    /// Number of open `frameset` elements, if the page is a frameset.
    framesets: usize,
}

impl<'a> Scanner<'a> {
    fn run(&mut self) {
        while let Some(offset) = memchr(b'<', &self.data[self.at..]) {
            let start = self.at + offset;
            if self.frames == Frames::Possible
                && self.data[self.at..start].iter().any(|byte| !is_space(*byte) && *byte != 0)
            {
                self.frames = Frames::No;
            }
            match self.data.get(start + 1) {
                Some(byte) if byte.is_ascii_alphabetic() => self.start_tag(start + 1),
                Some(b'/') => self.end_tag(start + 2),
                Some(b'!') => self.declaration(start + 2),
                Some(b'?') => self.at = self.after_greater(start + 2),
                Some(_) => {
                    if self.frames == Frames::Possible {
                        self.frames = Frames::No;
                    }
                    self.at = start + 1;
                }
                None => break,
            }
        }
    }

    /// Return the position after the next `>`, or the end of the page.
    fn after_greater(&self, from: usize) -> usize {
        self.data.get(from..).and_then(|rest| memchr(b'>', rest)).map_or(self.data.len(), |offset| from + offset + 1)
    }

    fn declaration(&mut self, at: usize) {
        let rest = &self.data[at..];
        if rest.starts_with(b"--") {
            self.at = self.after_comment(at + 2);
        } else if rest.starts_with(b"[CDATA[") && self.is_foreign() {
            self.at = memmem::find(rest, b"]]>").map_or(self.data.len(), |offset| at + offset + 3);
        } else {
            self.at = self.after_greater(at);
        }
    }

    /// Return the position after a comment whose text begins at `at`. It ends at `-->` or `--!>`, or at once with `>` or
    /// `->`.
    fn after_comment(&self, at: usize) -> usize {
        let rest = &self.data[at..];
        if rest.starts_with(b">") {
            return at + 1;
        }
        if rest.starts_with(b"->") {
            return at + 2;
        }
        let mut from = 0;
        while let Some(offset) = memmem::find(&rest[from..], b"--") {
            let mut end = from + offset + 2;
            while rest.get(end) == Some(&b'-') {
                end += 1;
            }
            if rest.get(end) == Some(&b'>') {
                return at + end + 1;
            }
            if rest[end..].starts_with(b"!>") {
                return at + end + 2;
            }
            from = end;
        }
        self.data.len()
    }

    fn end_tag(&mut self, at: usize) {
        match self.data.get(at) {
            Some(byte) if byte.is_ascii_alphabetic() => {}
            Some(b'>') => {
                self.at = at + 1;
                return;
            }
            Some(_) => {
                self.at = self.after_greater(at);
                return;
            }
            None => {
                self.at = self.data.len();
                return;
            }
        }
        let end = self.name_end(at);
        let name = &self.data[at..end];
        if !self.skip_attributes(end) {
            return;
        }
        if !self.open.is_empty() {
            self.close_foreign(name);
        }
        // In a drawing that is no template, its own elements of this name were closed above.
        if self.templates > 0 && name.eq_ignore_ascii_case(b"template") && !self.is_foreign() {
            self.templates -= 1;
            self.open.clear();
            self.deeper = 0;
        } else if self.framesets > 0 && name.eq_ignore_ascii_case(b"frameset") {
            self.framesets -= 1;
        }
    }

    fn start_tag(&mut self, at: usize) {
        let end = self.name_end(at);
        let name = &self.data[at..end];
        if name.len() > 14 {
            // No name that matters is longer; in a drawing every element counts.
            let Some(closed) = self.skip_tag(end) else { return };
            if self.is_foreign() && !closed {
                self.push(name, Kind::Foreign, false);
            }
            return;
        }
        let mut lower = [0u8; 16];
        for (to, from) in lower.iter_mut().zip(name) {
            *to = from.to_ascii_lowercase();
        }
        let lower_name = &lower[..name.len()];
        if self.is_foreign() {
            self.foreign_start(name, lower_name, end);
        } else if self.frames == Frames::Yes {
            self.frameset_start(name, lower_name, end);
        } else {
            self.html_start(name, lower_name, end);
        }
    }

    fn html_start(&mut self, name: &'a [u8], lower: &[u8], end: usize) {
        if self.frames == Frames::Possible {
            if ENDS_FRAMES.contains(&lower) {
                self.frames = Frames::No;
            } else if self.head.is_none() && !IN_HEAD.contains(&lower) {
                let found = &self.found;
                self.head = Some(Head {
                    anchors: found.anchors.len(),
                    nexts: found.nexts.len(),
                    refreshes: found.refreshes.len(),
                    has_base: found.base.is_some(),
                    nofollow: found.nofollow,
                    noindex: found.noindex,
                });
            }
        }
        match lower {
            b"a" | b"area" | b"base" | b"link" | b"meta" => {
                let Some((attributes, _)) = self.attributes(end) else { return };
                self.link(lower, &attributes);
            }
            b"script" => self.skip_raw(name, end, Raw::Script),
            b"style" | b"textarea" | b"title" | b"xmp" | b"noembed" => self.skip_raw(name, end, Raw::Text),
            b"iframe" => {
                let Some((attributes, _)) = self.attributes(end) else { return };
                self.frame(&attributes);
                self.at = self.raw_end(self.at, name);
            }
            b"noframes" => self.noframes(name, end),
            b"plaintext" => self.skip_raw(name, end, Raw::Rest),
            b"template" => {
                if self.skip_attributes(end) {
                    self.templates += 1;
                }
            }
            b"svg" | b"math" => {
                let Some(closed) = self.skip_tag(end) else { return };
                if !closed {
                    if self.open.is_empty() {
                        self.drawing_start = end;
                    }
                    self.push(name, Kind::Foreign, lower == b"math");
                }
            }
            b"frameset" => {
                if self.skip_attributes(end) && self.frames == Frames::Possible && self.templates == 0 {
                    self.frames = Frames::Yes;
                    self.framesets = 1;
                    self.forget_body();
                }
            }
            b"input" if self.frames == Frames::Possible => {
                self.skip_attributes(end);
                self.frames = Frames::No; // a hidden one would not; none precedes a frameset in practice
            }
            _ => {
                self.skip_attributes(end);
            }
        }
    }

    /// A start tag in or after the framesets of a page of frames, where no other element counts.
    fn frameset_start(&mut self, name: &'a [u8], lower: &[u8], end: usize) {
        match lower {
            b"noframes" => self.noframes(name, end),
            b"frame" if self.framesets > 0 => {
                let Some((attributes, _)) = self.attributes(end) else { return };
                self.frame(&attributes);
            }
            b"frameset" if self.framesets > 0 => self.framesets += usize::from(self.skip_attributes(end)),
            _ => {
                self.skip_attributes(end);
            }
        }
    }

    /// Read what a page shows where frames are not supported: to a parser it is text.
    fn noframes(&mut self, name: &'a [u8], end: usize) {
        if !self.skip_attributes(end) {
            return;
        }
        let start = self.at;
        self.at = self.raw_end(start, name);
        if self.templates == 0 && self.place == Place::Page {
            let mut inner = scan_document(&self.data[start..self.at], Place::Noframes);
            self.found.anchors.append(&mut inner.anchors);
        }
    }

    /// Note the document that a frame shows, and the links of one that stands in the page (`srcdoc`).
    fn frame(&mut self, attributes: &Attributes<'a>) {
        if self.templates > 0 {
            return;
        }
        if let Some(src) = attributes.src.get().filter(|src| !src.is_empty()) {
            self.anchor(src, attributes);
        }
        if let Some(srcdoc) = attributes.srcdoc.get().filter(|_| self.place != Place::Srcdoc) {
            let document = decode(srcdoc);
            let inner = scan_document(&document, Place::Srcdoc).anchors;
            self.found.anchors.extend(
                inner
                    .into_iter()
                    .map(|anchor| Anchor { href: Cow::Owned(anchor.href.into_owned()), nofollow: anchor.nofollow }),
            );
        }
    }

    /// A start tag where the innermost open element belongs to a drawing or formula.
    fn foreign_start(&mut self, name: &'a [u8], lower: &[u8], end: usize) {
        let math = self.open.last().is_some_and(|open| open.math);
        let Some((attributes, closed)) = self.attributes(end) else { return };
        if BREAKS_OUT.contains(&lower) || (lower == b"font" && attributes.is_font) {
            self.leave_foreign();
            // The tag's attributes have been passed; what it changes in HTML is done here.
            if lower == b"meta" {
                self.link(lower, &attributes);
            }
            if self.frames == Frames::Possible && ENDS_FRAMES.contains(&lower) {
                self.frames = Frames::No;
            }
            return;
        }
        if lower == b"a" {
            // Others of its elements are not those of HTML that have the same name.
            let href = if attributes.href.get().is_some() { attributes.href } else { attributes.xlink_href };
            self.link(lower, &Attributes { href, ..attributes });
        }
        if closed {
            return;
        }
        let html_inside = if math {
            matches!(lower, b"mi" | b"mo" | b"mn" | b"ms" | b"mtext")
                || (lower == b"annotation-xml"
                    && attributes.encoding.get().is_some_and(|value| {
                        value.eq_ignore_ascii_case(b"text/html") || value.eq_ignore_ascii_case(b"application/xhtml+xml")
                    }))
        } else {
            matches!(lower, b"foreignobject" | b"desc" | b"title")
        };
        let kind = if html_inside { Kind::HtmlInside } else { Kind::Foreign };
        // An `svg` in a formula is an element of the formula, but in an annotation it is a drawing.
        let in_annotation = self.open.last().is_some_and(|open| open.name.eq_ignore_ascii_case(b"annotation-xml"));
        self.push(name, kind, math && !(in_annotation && lower == b"svg"));
    }

    /// A frameset replaces the body that seemed to have begun, with all links in it.
    fn forget_body(&mut self) {
        let found = &mut self.found;
        if let Some(head) = &self.head {
            found.anchors.truncate(head.anchors);
            found.nexts.truncate(head.nexts);
            found.refreshes.truncate(head.refreshes);
            if !head.has_base {
                found.base = None;
            }
            found.nofollow = head.nofollow;
            found.noindex = head.noindex;
        }
    }

    fn push(&mut self, name: &'a [u8], kind: Kind, math: bool) {
        if self.open.len() < MAX_OPEN {
            self.open.push(Open { name, kind, math });
        } else {
            self.deeper += 1;
        }
    }

    /// Whether tags are those of a drawing or formula.
    fn is_foreign(&self) -> bool {
        self.open.last().is_some_and(|open| open.kind == Kind::Foreign)
    }

    /// Close elements until HTML counts again.
    fn leave_foreign(&mut self) {
        self.deeper = 0;
        while self.is_foreign() {
            self.open.pop();
        }
    }

    /// An end tag while elements of a drawing are open: it closes the innermost one of its name.
    fn close_foreign(&mut self, name: &[u8]) {
        if self.deeper > 0 {
            self.deeper -= 1;
            return;
        }
        if let Some(at) = self.open.iter().rposition(|open| open.name.eq_ignore_ascii_case(name)) {
            self.open.truncate(at);
        } else if self.is_foreign()
            && (name.eq_ignore_ascii_case(b"p") || name.eq_ignore_ascii_case(b"br") || self.is_open_in_html(name))
        {
            // The end of an element around the drawing, which was left open; `</p>` and `</br>` end it in any case.
            self.leave_foreign();
        }
    }

    /// Whether an element of HTML of this name is open around the drawing: more of its tags began than ended. Looks
    /// through the page so far, and is therefore asked only a few times; it matters only where a drawing has no end tag.
    fn is_open_in_html(&mut self, name: &[u8]) -> bool {
        // The end of the body is noted, but leaves everything open.
        if self.looks == 0 || name.eq_ignore_ascii_case(b"body") || name.eq_ignore_ascii_case(b"html") {
            return false;
        }
        self.looks -= 1;
        let mut open = 0;
        for start in memchr_iter(b'<', &self.data[..self.drawing_start]) {
            if self.is_tag_at(start + 1, name, false) {
                open += 1;
            } else if open > 0 && self.is_tag_at(start + 1, name, true) {
                open -= 1;
            }
        }
        open > 0
    }

    fn link(&mut self, lower: &[u8], attributes: &Attributes<'a>) {
        if self.templates > 0 {
            return;
        }
        match lower {
            b"a" | b"area" => {
                if let Some(href) = attributes.href.get() {
                    self.anchor(href, attributes);
                }
            }
            b"base" => {
                if self.found.base.is_none() {
                    self.found.base = attributes.href.get().map(decode);
                }
            }
            b"link" => {
                if let (Some(href), Some(rel)) = (attributes.href.get(), attributes.rel.get()) {
                    if has_word(&decode(rel), "next") {
                        self.found.nexts.push(decode(href));
                    }
                }
            }
            _ => self.meta(attributes),
        }
    }

    #[inline(always)]
    fn anchor(&mut self, target: &'a [u8], attributes: &Attributes<'a>) {
        let nofollow = attributes.rel.get().is_some_and(|rel| has_word(&decode(rel), "nofollow"));
        self.found.anchors.push(Anchor { href: decode(target), nofollow });
    }

    fn meta(&mut self, attributes: &Attributes<'a>) {
        let Some(content) = attributes.content.get() else { return };
        let is = |seen: Seen<'a>, word: &str| {
            seen.get().is_some_and(|value| {
                String::from_utf8_lossy(&decode(value)).trim_matches(is_python_space).eq_ignore_ascii_case(word)
            })
        };
        if is(attributes.name, "robots") {
            let content = decode(content);
            let content = String::from_utf8_lossy(&content);
            for word in content.split(|one| one == ',' || is_python_space(one)) {
                let none = word.eq_ignore_ascii_case("none");
                self.found.nofollow |= none || word.eq_ignore_ascii_case("nofollow");
                self.found.noindex |= none || word.eq_ignore_ascii_case("noindex");
            }
        } else if is(attributes.http_equiv, "refresh") {
            self.found.refreshes.push(decode(content));
        }
    }

    // --- tags ---------------------------------------------------------------------------------------------------------

    fn name_end(&self, at: usize) -> usize {
        let rest = &self.data[at..];
        at + rest.iter().position(|byte| CLASS[*byte as usize] & ENDS_NAME != 0).unwrap_or(rest.len())
    }

    /// Pass the attributes of a tag. Return false if the page ends before the tag does.
    fn skip_attributes(&mut self, at: usize) -> bool {
        self.skip_tag(at).is_some()
    }

    /// Pass the attributes of a tag. Return whether it closes itself; None: the page ends before the tag does.
    fn skip_tag(&mut self, at: usize) -> Option<bool> {
        if self.data.get(at) == Some(&b'>') {
            self.at = at + 1;
            return Some(false);
        }
        self.each_attribute(at, |_, _| {})
    }

    fn attributes(&mut self, at: usize) -> Option<(Attributes<'a>, bool)> {
        let mut found = Attributes::default();
        let closed = self.each_attribute(at, |name, value| match name.len() {
            3 if name.eq_ignore_ascii_case(b"rel") => found.rel.set(value),
            3 if name.eq_ignore_ascii_case(b"src") => found.src.set(value),
            6 if name.eq_ignore_ascii_case(b"srcdoc") => found.srcdoc.set(value),
            4 if name.eq_ignore_ascii_case(b"href") => found.href.set(value),
            4 if name.eq_ignore_ascii_case(b"name") => found.name.set(value),
            4 if name.eq_ignore_ascii_case(b"face") || name.eq_ignore_ascii_case(b"size") => found.is_font = true,
            5 if name.eq_ignore_ascii_case(b"color") => found.is_font = true,
            7 if name.eq_ignore_ascii_case(b"content") => found.content.set(value),
            8 if name.eq_ignore_ascii_case(b"encoding") => found.encoding.set(value),
            10 if name.eq_ignore_ascii_case(b"xlink:href") => found.xlink_href.set(value),
            10 if name.eq_ignore_ascii_case(b"http-equiv") => found.http_equiv.set(value),
            _ => {}
        })?;
        Some((found, closed))
    }

    /// Call `each` with the name and the raw value of every attribute. Moves behind the tag. Return whether the tag
    /// closes itself (`/>`); None: the page ends before the tag does, which makes it no tag.
    #[inline(always)]
    fn each_attribute(&mut self, from: usize, mut each: impl FnMut(&'a [u8], Option<&'a [u8]>)) -> Option<bool> {
        let data = self.data;
        let mut at = from;
        let ended = loop {
            // Before an attribute's name.
            while at < data.len() && CLASS[data[at] as usize] & SPACE != 0 {
                at += 1;
            }
            match data.get(at) {
                None => break None,
                Some(b'>') => break Some(false),
                Some(b'/') => {
                    at += 1;
                    if data.get(at) == Some(&b'>') {
                        break Some(true);
                    }
                    continue;
                }
                Some(_) => {}
            }
            let name_start = at;
            at += 1; // a `=` at the beginning belongs to the name
            while at < data.len() && CLASS[data[at] as usize] & ENDS_ATTRIBUTE == 0 {
                at += 1;
            }
            let name = &data[name_start..at];
            while at < data.len() && CLASS[data[at] as usize] & SPACE != 0 {
                at += 1;
            }
            if data.get(at) != Some(&b'=') {
                each(name, None);
                continue;
            }
            at += 1;
            while at < data.len() && CLASS[data[at] as usize] & SPACE != 0 {
                at += 1;
            }
            match data.get(at) {
                None => break None,
                Some(&quote) if quote == b'"' || quote == b'\'' => {
                    at += 1;
                    let Some(length) = memchr(quote, &data[at..]) else { break None };
                    each(name, Some(&data[at..at + length]));
                    at += length + 1;
                }
                Some(b'>') => {
                    each(name, None);
                    break Some(false);
                }
                Some(_) => {
                    let start = at;
                    while at < data.len() && CLASS[data[at] as usize] & ENDS_VALUE == 0 {
                        at += 1;
                    }
                    each(name, Some(&data[start..at]));
                }
            }
        };
        self.at = if ended.is_some() { at + 1 } else { data.len() };
        ended
    }

    // --- text in which tags do not count -------------------------------------------------------------------------------

    fn skip_raw(&mut self, name: &'a [u8], end: usize, raw: Raw) {
        // `/>` does not close these.
        if !self.skip_attributes(end) {
            return;
        }
        match raw {
            Raw::Rest => self.at = self.data.len(),
            Raw::Text => self.at = self.raw_end(self.at, name),
            Raw::Script => self.skip_script(),
        }
    }

    /// Return the position of the `<` of the next end tag with this name, or the end of the page.
    fn raw_end(&self, from: usize, name: &[u8]) -> usize {
        let mut at = from;
        while let Some(offset) = memchr(b'<', &self.data[at..]) {
            at += offset;
            if self.is_tag_at(at + 1, name, true) {
                return at;
            }
            at += 1;
        }
        self.data.len()
    }

    /// Whether at this position stands `name` (after a `/` if `end`) as a whole word of a tag.
    fn is_tag_at(&self, at: usize, name: &[u8], end: bool) -> bool {
        let begin = at + usize::from(end);
        (!end || self.data.get(at) == Some(&b'/'))
            && self.data.get(begin..begin + name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name))
            && self.data.get(begin + name.len()).is_some_and(|byte| CLASS[*byte as usize] & ENDS_NAME != 0)
    }

    /// Pass a script. After `<!--`, a `<script` hides the next `</script>` (the standard's "script data double escaped
    /// state").
    fn skip_script(&mut self) {
        let mut escaped = false;
        let mut doubly = false;
        let mut at = self.at;
        while let Some(offset) = memchr2(b'<', b'-', &self.data[at..]) {
            at += offset;
            match self.data[at] {
                b'<' if self.is_tag_at(at + 1, b"script", true) => {
                    if !doubly {
                        self.at = at;
                        return;
                    }
                    doubly = false;
                    at += 8;
                }
                b'<' if escaped && !doubly && self.is_tag_at(at + 1, b"script", false) => {
                    doubly = true;
                    at += 7;
                }
                b'<' if !escaped && self.data[at..].starts_with(b"<!--") => {
                    escaped = true;
                    at += 2; // the dashes may begin its end: `<!-->`
                }
                b'-' if escaped && self.data[at..].starts_with(b"--") => {
                    let mut end = at + 2;
                    while self.data.get(end) == Some(&b'-') {
                        end += 1;
                    }
                    if self.data.get(end) == Some(&b'>') {
                        escaped = false;
                        doubly = false;
                        end += 1;
                    }
                    at = end;
                }
                _ => at += 1,
            }
        }
        self.at = self.data.len();
    }
}

/// Elements of HTML that end a drawing (HTML standard, "the rules for parsing tokens in foreign content").
const BREAKS_OUT: &[&[u8]] = &[
    b"b",
    b"big",
    b"blockquote",
    b"body",
    b"br",
    b"center",
    b"code",
    b"dd",
    b"div",
    b"dl",
    b"dt",
    b"em",
    b"embed",
    b"h1",
    b"h2",
    b"h3",
    b"h4",
    b"h5",
    b"h6",
    b"head",
    b"hr",
    b"i",
    b"img",
    b"li",
    b"listing",
    b"menu",
    b"meta",
    b"nobr",
    b"ol",
    b"p",
    b"pre",
    b"ruby",
    b"s",
    b"small",
    b"span",
    b"strong",
    b"strike",
    b"sub",
    b"sup",
    b"table",
    b"tt",
    b"u",
    b"ul",
    b"var",
];

/// Start tags after which a page is no frameset any more.
const ENDS_FRAMES: &[&[u8]] = &[
    b"body",
    b"pre",
    b"listing",
    b"li",
    b"dd",
    b"dt",
    b"button",
    b"applet",
    b"marquee",
    b"object",
    b"table",
    b"area",
    b"br",
    b"embed",
    b"img",
    b"image",
    b"keygen",
    b"wbr",
    b"hr",
    b"textarea",
    b"xmp",
    b"iframe",
    b"select",
];

/// Start tags that do not begin the body.
const IN_HEAD: &[&[u8]] = &[
    b"html",
    b"head",
    b"base",
    b"basefont",
    b"bgsound",
    b"link",
    b"meta",
    b"title",
    b"style",
    b"script",
    b"noscript",
    b"noframes",
    b"template",
    b"frameset",
];

const SPACE: u8 = 1;
const ENDS_NAME: u8 = 2;
const ENDS_ATTRIBUTE: u8 = 4;
const ENDS_VALUE: u8 = 8;

/// What each byte ends.
static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut found = [0u8; 256];
    let spaces = b"\t\n\x0c\r ";
    let mut index = 0;
    while index < spaces.len() {
        found[spaces[index] as usize] = SPACE | ENDS_NAME | ENDS_ATTRIBUTE | ENDS_VALUE;
        index += 1;
    }
    found[b'/' as usize] = ENDS_NAME | ENDS_ATTRIBUTE;
    found[b'>' as usize] = ENDS_NAME | ENDS_ATTRIBUTE | ENDS_VALUE;
    found[b'=' as usize] = ENDS_ATTRIBUTE;
    found
}

fn is_space(byte: u8) -> bool {
    CLASS[byte as usize] & SPACE != 0
}

/// White space of Python's `str.split` and `strip`, by which the reference reads words.
fn is_python_space(one: char) -> bool {
    one.is_whitespace() || matches!(one, '\x1c'..='\x1f')
}

/// Whether a text has a word of ASCII letters, in any case.
fn has_word(text: &[u8], word: &str) -> bool {
    String::from_utf8_lossy(text).split(is_python_space).any(|found| found.eq_ignore_ascii_case(word))
}
