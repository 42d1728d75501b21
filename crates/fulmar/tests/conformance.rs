//! `docs/conformance.md` says what is so: the tests that it names exist, and no rule is without one. And what its rule 36 says of the
//! library's own code.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The rows of the tables: cells without the spaces around them.
fn rows(document: &str) -> impl Iterator<Item = Vec<&str>> {
    document
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .filter(|cells: &Vec<_>| cells.first().is_some_and(|cell| cell.parse::<u32>().is_ok()))
}

#[test]
fn every_rule_has_tests_that_exist_and_no_deviation() {
    let document = fs::read_to_string(root().join("docs/conformance.md")).unwrap();
    let mut sources = HashMap::new();
    let mut rules = Vec::new();
    for row in rows(&document) {
        let [rule, _, tests, deviation] = row[..] else { panic!("a row has four cells: {row:?}") };
        rules.push(rule.parse::<u32>().unwrap());
        assert_eq!(deviation, "none", "rule {rule}");
        assert!(!tests.is_empty(), "rule {rule} has no test");
        for test in tests.split(", ") {
            let named = test.strip_prefix('`').and_then(|test| test.strip_suffix('`'));
            let (file, name) = named.and_then(|test| test.split_once("::")).unwrap_or_else(|| {
                panic!("rule {rule}: {test} is no `file::name`");
            });
            let source = sources.entry(file.to_owned()).or_insert_with(|| {
                fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
            });
            assert!(has_test(source, name), "rule {rule}: {file} has no test {name}");
        }
    }
    let expected: Vec<u32> = (1..=50).chain([54, 55]).collect();
    assert_eq!(rules, expected, "each rule has one row, in order");
}

/// Whether `source` has a function of this name whose attributes make a test of it.
fn has_test(source: &str, name: &str) -> bool {
    let definition = format!("fn {name}(");
    let mut lines = source.lines();
    let Some(at) = lines.position(|line| line.trim_start().starts_with(&definition)) else { return false };
    let before: Vec<_> = source.lines().take(at).collect();
    before
        .iter()
        .rev()
        .map(|line| line.trim_start())
        .take_while(|line| line.starts_with("#[") || line.starts_with("//"))
        .any(|line| line == "#[test]")
}

/// Codes that say something of a request or of a server's data, which no library can know (statuscodes.md).
const OF_APPLICATIONS: [(&str, &str); 7] = [
    ("InvalidArgument", "invalid_argument"),
    ("NotFound", "not_found"),
    ("AlreadyExists", "already_exists"),
    ("FailedPrecondition", "failed_precondition"),
    ("Aborted", "aborted"),
    ("OutOfRange", "out_of_range"),
    ("DataLoss", "data_loss"),
];

/// Wire rule 36. The code itself, its constructors and what rewrites it may name such a code; nothing else of the library does.
#[test]
fn the_library_makes_no_code_that_only_applications_may_make() {
    let may_name = ["grpc/src/code.rs", "grpc/src/status/constructors.rs", "fulmar/src/control_plane.rs"];
    let mut searched = 0;
    for krate in ["grpc", "fulmar"] {
        for file in sources_in(&root().join("crates").join(krate).join("src")) {
            let is_test =
                file.ends_with("tests.rs") || file.components().any(|part| part.as_os_str() == "tests");
            if is_test || may_name.iter().any(|name| file.ends_with(name)) {
                continue;
            }
            searched += 1;
            let text = fs::read_to_string(&file).unwrap();
            // Up to the unit tests, and without comments, which have examples of servers.
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
                for (variant, constructor) in OF_APPLICATIONS {
                    let makes = line.contains(&format!("Code::{variant}"))
                        || line.contains(&format!("Status::{constructor}("))
                        || line.contains(&format!("Self::{constructor}("));
                    assert!(!makes, "{}: {line}", file.display());
                }
            }
        }
    }
    assert!(searched > 50, "the sources are where they are looked for: {searched}");
}

fn sources_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources_in(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
