//! The stories of `hpack-test-case`: header lists of real sites, as several encoders wrote them, and raw. They are not part of
//! this repository; where they are absent, the tests say so and pass.

use super::{bytes_of_hex, texts};
use crate::{DecodeLimits, Decoder, Encoder, Field, FieldList, TABLE_BYTES_INITIAL};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

const LIMITS: DecodeLimits =
    DecodeLimits { list_bytes_max: 1 << 20, fields_max: 1 << 10, string_bytes_max: 1 << 20 };

/// A header block of a story.
struct Case {
    /// None in `raw-data`.
    wire: Option<Vec<u8>>,
    headers: Vec<(String, String)>,
    /// The decoder's limit from this block on, where it changes.
    table_bytes_max: Option<usize>,
}

fn stories_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance/hpack")
}

/// The stories in one of the folders; None where they are absent.
fn stories(folder: &Path) -> Option<Vec<(PathBuf, Vec<Case>)>> {
    let Ok(files) = fs::read_dir(folder) else {
        println!("skipped: there is no {}", folder.display());
        return None;
    };
    let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    assert!(!paths.is_empty(), "no story in {}", folder.display());
    Some(paths.into_iter().map(|path| (path.clone(), cases(&fs::read(path).unwrap()))).collect())
}

fn cases(story: &[u8]) -> Vec<Case> {
    let story: Value = serde_json::from_slice(story).unwrap();
    let case = |case: &Value| Case {
        wire: case["wire"].as_str().map(bytes_of_hex),
        headers: case["headers"].as_array().unwrap().iter().map(header).collect(),
        table_bytes_max: case["header_table_size"].as_u64().map(|bytes| bytes as usize),
    };
    story["cases"].as_array().unwrap().iter().map(case).collect()
}

/// An object with one member.
fn header(header: &Value) -> (String, String) {
    let (name, value) = header.as_object().unwrap().iter().next().unwrap();
    (name.clone(), value.as_str().unwrap().to_owned())
}

#[test]
fn every_encoded_story_decodes_to_its_headers() {
    let Ok(folders) = fs::read_dir(stories_folder()) else {
        println!("skipped: there is no {}", stories_folder().display());
        return;
    };
    let folders = folders.map(|folder| folder.unwrap().path()).filter(|path| path.is_dir());
    let mut decoded = 0;
    for (path, cases) in folders.filter_map(|folder| stories(&folder)).flatten() {
        let mut decoder = Decoder::new(TABLE_BYTES_INITIAL);
        let mut fields = FieldList::new();
        for (number, case) in cases.iter().enumerate() {
            let Some(wire) = &case.wire else { continue };
            if let Some(table_bytes_max) = case.table_bytes_max {
                decoder.set_table_bytes_max(table_bytes_max);
            }
            decoder
                .decode(wire, &LIMITS, &mut fields)
                .unwrap_or_else(|error| panic!("{}, case {number}: {error}", path.display()));
            assert_eq!(texts(&fields), case.headers, "{}, case {number}", path.display());
            decoded += 1;
        }
    }
    println!("{decoded} header blocks decoded");
    assert!(decoded > 0);
}

#[test]
fn every_raw_story_round_trips_through_our_encoder_and_both_decoders() {
    let Some(stories) = stories(&stories_folder().join("raw-data")) else { return };
    let (mut header_bytes, mut wire_bytes) = (0, 0);
    for (story, (path, cases)) in stories.into_iter().enumerate() {
        let mut encoder = Encoder::new(TABLE_BYTES_INITIAL);
        let mut decoder = Decoder::new(TABLE_BYTES_INITIAL);
        let mut oracle = hpack::Decoder::new();
        oracle.set_max_table_size(TABLE_BYTES_INITIAL);
        let mut fields = FieldList::new();
        for (number, case) in cases.iter().enumerate() {
            let mut wire = Vec::new();
            encoder.encode(
                case.headers.iter().map(|(name, value)| Field::new(name.as_bytes(), value.as_bytes())),
                &mut wire,
            );
            decoder.decode(&wire, &LIMITS, &mut fields).unwrap();
            assert_eq!(texts(&fields), case.headers, "{}, case {number}", path.display());
            // The oracle is slow: it builds its tables again for each string.
            if story % 4 == 0 {
                let theirs = oracle.decode(&wire).unwrap();
                let theirs = theirs.iter().map(|(name, value)| (&name[..], &value[..]));
                assert!(theirs.eq(fields.iter().map(|field| (field.name, field.value))));
            }
            header_bytes += case.headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
            wire_bytes += wire.len();
        }
    }
    println!("{header_bytes} bytes of headers became {wire_bytes}");
    // nghttp2's encoder comes to 31.0 %.
    assert!(wire_bytes * 1000 < header_bytes * 315, "{wire_bytes} of {header_bytes}");
}
