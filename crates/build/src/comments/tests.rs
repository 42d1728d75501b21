use super::*;
use prost_types::SourceCodeInfo;
use prost_types::source_code_info::Location;

fn doc(comment: &str) -> String {
    doc_lines(comment).join("\n")
}

#[test]
fn plain_text_keeps_its_lines_and_loses_its_margin() {
    assert_eq!(doc(" One line.\n\n Another,\n longer.\n"), "One line.\n\nAnother,\nlonger.");
    assert_eq!(doc("no margin"), "no margin");
    assert_eq!(doc(" \n\n text \n \n"), "text");
    assert_eq!(doc(""), "");
}

#[test]
fn lists_keep_two_levels() {
    assert_eq!(
        doc(" - one\n   - two\n     more of two\n - three"),
        "- one\n  - two\n   more of two\n- three"
    );
}

#[test]
fn indented_code_becomes_a_text_fence() {
    assert_eq!(
        doc(" Example:\n\n     let x = <y>;\n\n       z[0]\n\n Done."),
        "Example:\n\n```text\nlet x = <y>;\n\n  z[0]\n```\n\nDone."
    );
    assert_eq!(doc(" text\n\n     code"), "text\n\n```text\ncode\n```");
    assert_eq!(doc(" text\n\n     code\n text"), "text\n\n```text\ncode\n```\n\ntext");
}

#[test]
fn fenced_code_becomes_text_whatever_its_language() {
    assert_eq!(doc(" ```rust\n fail!()\n ```\n after"), "````text\nfail!()\n````\nafter");
    assert_eq!(doc(" ~~~\n a\n ~~~"), "```text\na\n```");
    assert_eq!(doc(" ```\n never closed"), "````text\nnever closed\n````");
    assert_eq!(doc(" ~~~~\n ```\n inner\n ```\n ~~~~"), "````text\n```\ninner\n```\n````");
}

#[test]
fn prose_is_never_deep_enough_to_be_code() {
    assert_eq!(doc(" # Heading\n      deep"), "# Heading\n   deep");
    assert_eq!(doc(" -      bullet"), "- bullet");
    assert_eq!(doc(" - ```\n   x"), "- \\`\\`\\`\n  x");
    assert_eq!(doc(" - ~~~ x"), "- \\~\\~\\~ x");
    assert_eq!(doc(" >     quoted"), "\\> quoted");
}

#[test]
fn brackets_and_tags_are_text() {
    assert_eq!(doc("a [link] and [a][b] and [c](Foo)"), r"a \[link\] and \[a\]\[b\] and \[c\](Foo)");
    assert_eq!(doc("Map<String, Vec<u8>> and <br>"), r"Map\<String, Vec\<u8>> and \<br>");
    assert_eq!(doc(r"already \[done\] \<so\>, back\slash"), r"already \[done\] \<so\>, back\slash");
    assert_eq!(doc("ends with \\"), "ends with \\");
}

#[test]
fn code_spans_stay_and_lone_backticks_do_not_pair_up() {
    assert_eq!(doc("see `Vec<u8>[0]` and ``a`b``"), "see `Vec<u8>[0]` and ``a`b``");
    assert_eq!(doc("a ` b\nc ` <d>"), "a \\` b\nc \\` \\<d>");
}

#[test]
fn addresses_become_links() {
    assert_eq!(doc("see https://example.com/a_b?c=d."), "see <https://example.com/a_b?c=d>.");
    assert_eq!(
        doc("see <http://example.com>, (https://example.com)"),
        "see <http://example.com>, (<https://example.com>)"
    );
    assert_eq!(doc("[here](https://example.com/x) it is"), "[here](<https://example.com/x>) it is");
    assert_eq!(doc("just https:// and `https://example.com`"), "just https:// and `https://example.com`");
}

#[test]
fn characters_that_rustc_refuses_are_dropped() {
    assert_eq!(doc("a\rb \u{202e}c\u{0}"), "ab c");
    assert_eq!(doc("größer → 値"), "größer → 値");
}

#[test]
fn comments_come_back_where_they_were_taken() {
    let location = Location {
        leading_comments: Some(" Before.\n".into()),
        trailing_comments: Some(" After [it].\n".into()),
        leading_detached_comments: vec![" Licence\n".into()],
        ..Location::default()
    };
    let mut file = FileDescriptorProto {
        source_code_info: Some(SourceCodeInfo { location: vec![location, Location::default()] }),
        ..FileDescriptorProto::default()
    };
    let mut comments = Comments::default();
    comments.take(&mut file);
    let location = &file.source_code_info.as_ref().unwrap().location;
    assert_eq!(location[0].leading_comments.as_deref(), Some("fulmar-comment-0"));
    assert_eq!(location[0].trailing_comments, None);
    assert!(location[0].leading_detached_comments.is_empty());
    assert_eq!(location[1].leading_comments, None);

    let code = "mod a {\n    /// fulmar-comment-0\n    struct B;\n    /// fulmar-comment-7\n}\n";
    let restored = "mod a {\n    /// Before.\n    ///\n    /// After \\[it\\].\n    struct B;\n    /// fulmar-comment-7\n}\n";
    assert_eq!(comments.restore(code), restored);
}
