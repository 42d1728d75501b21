//! Comments of a `.proto`, made fit for rustdoc.
//!
//! prost-build takes comments over nearly as they stand: an indented example becomes a doctest that does not compile, and
//! `Map<String, Foo>` an unclosed HTML tag. Its own escaping works line by line and also strikes inside code. So each
//! comment is replaced by a placeholder before prost-build sees the file, and put back, made safe, when it is done.

use prost_types::FileDescriptorProto;

/// The comments taken out of a set of files.
#[derive(Default)]
pub(crate) struct Comments {
    taken: Vec<Vec<String>>,
}

/// No rule of prost-build changes a line made of this and a number.
const PLACEHOLDER: &str = "fulmar-comment-";

impl Comments {
    /// Takes the comments out of `file` and leaves placeholders. Comments that belong to no item are dropped.
    pub(crate) fn take(&mut self, file: &mut FileDescriptorProto) {
        let locations = file.source_code_info.iter_mut().flat_map(|info| &mut info.location);
        for location in locations {
            location.leading_detached_comments.clear();
            let mut lines = location.leading_comments.take().map_or_else(Vec::new, |text| doc_lines(&text));
            let trailing = location.trailing_comments.take().map_or_else(Vec::new, |text| doc_lines(&text));
            if !lines.is_empty() && !trailing.is_empty() {
                lines.push(String::new());
            }
            lines.extend(trailing);
            if !lines.is_empty() {
                location.leading_comments = Some(format!("{PLACEHOLDER}{}", self.taken.len()));
                self.taken.push(lines);
            }
        }
    }

    /// Puts the comments back into generated code.
    pub(crate) fn restore(&self, code: &str) -> String {
        let mut restored = String::with_capacity(code.len() * 2);
        for line in code.lines() {
            let indent = &line[..line.len() - line.trim_start().len()];
            match self.comment_of(line) {
                Some(comment) => {
                    for text in comment {
                        restored.push_str(format!("{indent}/// {text}").trim_end());
                        restored.push('\n');
                    }
                }
                None => {
                    restored.push_str(line);
                    restored.push('\n');
                }
            }
        }
        restored
    }

    fn comment_of(&self, line: &str) -> Option<&[String]> {
        let number = line.trim().strip_prefix("///")?.trim().strip_prefix(PLACEHOLDER)?;
        self.taken.get(number.parse::<usize>().ok()?).map(Vec::as_slice)
    }
}

/// A deeper line could be a code block, whatever comes before it.
const PROSE_INDENT_MAX: usize = 3;

/// Turns the text of a comment into Markdown lines that rustdoc shows as they were meant: code as plain text in fences,
/// the rest as paragraphs and lists in which nothing is a link by accident, and nothing HTML.
fn doc_lines(comment: &str) -> Vec<String> {
    let lines: Vec<String> = comment.lines().map(clean).collect();
    let margin = lines.iter().filter(|line| !line.is_empty()).map(|line| indent_of(line)).min().unwrap_or(0);
    let fence = "`".repeat((longest_backtick_run(&lines) + 1).max(3));
    let mut block = Block::Prose;
    let mut out: Vec<String> = Vec::new();
    for line in &lines {
        let line = line.get(margin..).unwrap_or_default();
        let (indent, body) = (indent_of(line), line.trim_start());
        if let Block::Indented = block
            && !body.is_empty()
            && indent <= PROSE_INDENT_MAX
        {
            close(&mut out, &fence);
            block = Block::Prose;
        }
        match block {
            Block::Prose if fence_of(body).is_some() => {
                out.push(format!("{fence}text"));
                block = Block::Fenced { marker: fence_of(body).unwrap_or_default(), indent };
            }
            Block::Prose if indent > PROSE_INDENT_MAX && out.last().is_none_or(String::is_empty) => {
                out.push(format!("{fence}text"));
                out.push(line[PROSE_INDENT_MAX + 1..].to_owned());
                block = Block::Indented;
            }
            Block::Prose => out.push(prose(indent, body)),
            Block::Fenced { marker, .. }
                if body.starts_with(marker) && body.trim_end_matches(&marker[..1]).is_empty() =>
            {
                out.push(fence.clone());
                block = Block::Prose;
            }
            Block::Fenced { indent: fence_indent, .. } => {
                out.push(line[indent.min(fence_indent)..].to_owned())
            }
            Block::Indented => out.push(line.get(PROSE_INDENT_MAX + 1..).unwrap_or_default().to_owned()),
        }
    }
    if !matches!(block, Block::Prose) {
        close(&mut out, &fence);
    }
    trim_blank(out)
}

/// What the line before was part of.
enum Block<'a> {
    Prose,
    Fenced { marker: &'a str, indent: usize },
    Indented,
}

/// Ends a code block, with the blank lines at its end behind it.
fn close(out: &mut Vec<String>, fence: &str) {
    let blank = out.iter().rev().take_while(|line| line.is_empty()).count();
    out.insert(out.len() - blank, fence.to_owned());
    if blank == 0 {
        out.push(String::new());
    }
}

fn trim_blank(mut lines: Vec<String>) -> Vec<String> {
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    let blank = lines.iter().take_while(|line| line.is_empty()).count();
    lines.drain(..blank);
    lines
}

/// Without tabs, trailing space, and the characters that rustc refuses in a doc comment (a lone carriage return, and those
/// that change the direction of text).
fn clean(line: &str) -> String {
    let refused = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    line.replace('\t', "    ").replace(refused, "").trim_end().to_owned()
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn longest_backtick_run(lines: &[String]) -> usize {
    lines.iter().flat_map(|line| line.split(|c| c != '`')).map(str::len).max().unwrap_or(0)
}

/// The marker with which `body` opens a fenced code block.
fn fence_of(body: &str) -> Option<&str> {
    let marked = |mark: char| &body[..body.len() - body.trim_start_matches(mark).len()];
    let (backticks, tildes) = (marked('`'), marked('~'));
    if backticks.len() >= 3 && !body[backticks.len()..].contains('`') {
        Some(backticks)
    } else if tildes.len() >= 3 {
        Some(tildes)
    } else {
        None
    }
}

/// One line outside code.
fn prose(indent: usize, body: &str) -> String {
    let mut out = " ".repeat(if body.is_empty() { 0 } else { indent.min(PROSE_INDENT_MAX) });
    if body.starts_with('>') {
        out.push('\\');
    }
    let mut rest = body;
    while let Some(next) = rest.chars().next() {
        rest = match next {
            '`' => take_code(rest, &mut out),
            '\\' => take_escape(rest, &mut out),
            '<' => take_angle(rest, &mut out),
            '[' => take_bracket(rest, &mut out),
            'h' if url_of(rest).is_some() => take_url(rest, &mut out),
            '~' => {
                // Behind a list's bullet, three would start a code block.
                out.push_str("\\~");
                &rest[1..]
            }
            ' ' => {
                // One space is as good as many, except that many behind a list's bullet would start a code block.
                out.push(' ');
                rest.trim_start_matches(' ')
            }
            ']' => {
                out.push_str("\\]");
                &rest[1..]
            }
            other => {
                out.push(other);
                &rest[other.len_utf8()..]
            }
        };
    }
    out
}

/// A code span that ends on its line stays; other backticks are escaped, so that they cannot pair up across lines.
fn take_code<'a>(text: &'a str, out: &mut String) -> &'a str {
    let run = text.len() - text.trim_start_matches('`').len();
    let (ticks, inside) = text.split_at(run);
    let mut from = 0;
    while let Some(found) = inside[from..].find('`') {
        let start = from + found;
        let length = inside[start..].len() - inside[start..].trim_start_matches('`').len();
        if length == run {
            let end = run + start + run;
            out.push_str(&text[..end]);
            return &text[end..];
        }
        from = start + length;
    }
    out.extend(ticks.chars().flat_map(|tick| ['\\', tick]));
    inside
}

/// A backslash and what it escapes.
fn take_escape<'a>(text: &'a str, out: &mut String) -> &'a str {
    let length = text.chars().take(2).map(char::len_utf8).sum();
    let escaped = text[1..length].chars().all(|c| c.is_ascii_punctuation());
    let length = if escaped { length } else { 1 };
    out.push_str(&text[..length]);
    &text[length..]
}

/// `<https://…>` stays; any other angle bracket is text.
fn take_angle<'a>(text: &'a str, out: &mut String) -> &'a str {
    if let Some(url) = url_of(&text[1..])
        && text[1 + url.len()..].starts_with('>')
    {
        return take_url(&text[1..], out).strip_prefix('>').unwrap_or_default();
    }
    out.push_str("\\<");
    &text[1..]
}

/// `[text](https://…)` stays; any other bracket is text.
fn take_bracket<'a>(text: &'a str, out: &mut String) -> &'a str {
    if let Some((label, rest)) = text[1..].split_once("](")
        && !label.contains(['[', ']', '`', '<', '\\'])
        && let Some(url) = url_of(rest)
        && let Some(rest) = rest[url.len()..].strip_prefix(')')
    {
        out.push_str(&format!("[{label}](<{url}>)"));
        return rest;
    }
    out.push_str("\\[");
    &text[1..]
}

fn take_url<'a>(text: &'a str, out: &mut String) -> &'a str {
    let url = url_of(text).unwrap_or_default();
    out.push_str(&format!("<{url}>"));
    &text[url.len()..]
}

/// The web address that `text` starts with, without the punctuation of a sentence at its end.
fn url_of(text: &str) -> Option<&str> {
    let scheme = ["https://", "http://"].into_iter().find(|scheme| text.starts_with(scheme))?;
    let end = text.find(|c: char| c.is_whitespace() || "<>\"`()[]\\".contains(c)).unwrap_or(text.len());
    let url = text[..end].trim_end_matches(['.', ',', ';', ':', '!', '?', '\'', '*', '_']);
    (url.len() > scheme.len()).then_some(url)
}

#[cfg(test)]
mod tests;
