//! What a broken or missing `.proto` is answered with.

use std::path::Path;

const BROKEN: &str = "tests/protos/broken";

fn error_of(file: &str) -> fulmar_build::Error {
    fulmar_build::configure()
        .generate_to_string(&[Path::new(BROKEN).join(file)], &[BROKEN])
        .expect_err("the file is broken")
}

/// The error is in the file itself, with line and column, and says `reason`.
fn assert_error(file: &str, line: usize, column: usize, reason: &str) {
    let error = error_of(file);
    let place = format!("{BROKEN}/{file}:{line}:{column}: ");
    assert!(error.to_string().starts_with(&place), "{error}, expected at {place}");
    assert!(error.reason().contains(reason), "{error}, expected: {reason}");
    assert_eq!(error.file(), Some(Path::new(BROKEN).join(file).as_path()));
    assert_eq!((error.line(), error.column()), (Some(line), Some(column)));
}

#[test]
fn r74_syntax_error_has_file_line_column_and_reason() {
    assert_error("syntax.proto", 4, 15, "expected '=', but found '1'");
}

#[test]
fn missing_import_is_found_where_it_is_imported() {
    assert_error("missing_import.proto", 5, 1, "import 'nowhere.proto' not found");
}

#[test]
fn unknown_type_of_a_field_is_named() {
    assert_error("unknown_type.proto", 5, 3, "'Unheard' is not defined");
}

#[test]
fn unknown_type_of_an_rpc_is_named() {
    assert_error("unknown_rpc_type.proto", 4, 12, "'Missing' is not defined");
}

#[test]
fn duplicate_field_number_is_found_at_its_second_use() {
    assert_error("duplicate_number.proto", 5, 18, "'1' is already used");
}

#[test]
fn unexpected_end_is_found_at_the_end() {
    assert_error("unexpected_end.proto", 4, 19, "reached end of file");
}

#[test]
fn bytes_that_are_not_utf8_are_found() {
    assert_error("not_utf8.proto", 2, 4, "not valid utf-8");
}

#[test]
fn error_in_an_imported_file_names_that_file() {
    let error = error_of("broken_import.proto");
    assert!(error.to_string().starts_with(&format!("{BROKEN}/syntax.proto:4:15: ")), "{error}");
}

#[test]
fn import_cycle_is_an_error() {
    let error = error_of("cycle.proto");
    assert!(error.to_string().starts_with(&format!("{BROKEN}/cycle.proto: import cycle")), "{error}");
}

#[test]
fn missing_file_is_named() {
    let error = error_of("absent.proto");
    assert!(error.to_string().starts_with(&format!("{BROKEN}/absent.proto: no such file")), "{error}");
    assert_eq!(error.line(), None);
}

#[test]
fn file_outside_the_include_paths_is_an_error_that_says_so() {
    let proto = "tests/protos/broken/syntax.proto";
    let includes = ["tests/protos/clashes"];
    let error = fulmar_build::configure().generate_to_string(&[proto], &includes).unwrap_err();
    assert!(error.to_string().contains("not in any include path"), "{error}");
    let none: [&str; 0] = [];
    let error = fulmar_build::configure().generate_to_string(&[proto], &none).unwrap_err();
    assert!(error.to_string().starts_with("tests/protos/broken/syntax.proto: "), "{error}");
    assert!(error.to_string().contains("name the file's folder"), "{error}");
    let error = fulmar_build::configure().generate_to_string(&["absent.proto"], &includes).unwrap_err();
    assert!(error.to_string().starts_with("absent.proto: no such file"), "{error}");
}

#[test]
fn output_folder_that_cannot_be_written_is_named() {
    let error = fulmar_build::configure()
        .out_dir("tests/no such folder")
        .emit_rerun_if_changed(false)
        .compile(&["tests/protos/clashes/case.proto"], &["tests/protos/clashes"])
        .unwrap_err();
    assert!(error.to_string().contains("no such folder"), "{error}");
    assert!(error.to_string().contains("cannot be written"), "{error}");
}

#[test]
fn debug_is_what_a_build_script_should_print() {
    let error = error_of("syntax.proto");
    assert_eq!(format!("{error:?}"), error.to_string());
    assert!(std::error::Error::source(&error).is_some());
}
