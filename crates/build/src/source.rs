/// Rust source code being written, indented by the depth of its blocks.
#[derive(Default)]
pub(crate) struct Source {
    text: String,
    depth: usize,
}

impl Source {
    /// Appends `lines` at the current depth. Their own indentation is kept on top of it.
    pub(crate) fn lines(&mut self, lines: &str) {
        for line in lines.lines() {
            if !line.is_empty() {
                self.text.push_str(&"    ".repeat(self.depth));
                self.text.push_str(line);
            }
            self.text.push('\n');
        }
    }

    pub(crate) fn blank(&mut self) {
        self.text.push('\n');
    }

    /// Appends a doc comment.
    pub(crate) fn docs(&mut self, text: &str) {
        for line in text.lines() {
            self.lines(format!("/// {line}").trim_end());
        }
    }

    /// Appends `head {`, what `body` writes one level deeper, and `}`.
    pub(crate) fn block(&mut self, head: &str, body: impl FnOnce(&mut Self)) {
        self.lines(&format!("{head} {{"));
        self.depth += 1;
        body(self);
        self.depth -= 1;
        self.lines("}");
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}
