//! The shared vectors, hostile texts, and the properties that tie scanner and rewriter together.
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::hash::unhex;

#[derive(serde::Deserialize)]
struct Vectors {
    vectors: Vec<Vector>,
}

#[derive(serde::Deserialize)]
struct Vector {
    id: String,
    input: Option<String>,
    input_hex: Option<String>,
    jcs: Expected,
    strict: Expected,
}

#[derive(serde::Deserialize)]
struct Expected {
    canonical: Option<String>,
    sha256: Option<String>,
    error: Option<String>,
}

fn vectors() -> Vec<(String, Vec<u8>, Expected, Expected)> {
    let file: Vectors = serde_json::from_str(include_str!("../../tests/data/canonical_vectors.json")).unwrap();
    let bytes = |digits: String| {
        digits.as_bytes().chunks(2).map(|pair| unhex::<1>(std::str::from_utf8(pair).unwrap()).unwrap()[0]).collect()
    };
    file.vectors
        .into_iter()
        .map(|v| (v.id, v.input.map_or_else(|| bytes(v.input_hex.unwrap()), String::into_bytes), v.jcs, v.strict))
        .collect()
}

fn check(id: &str, got: Result<String, CanonicalError>, expected: &Expected) {
    match (got, &expected.canonical) {
        (Ok(got), Some(canonical)) => {
            assert_eq!(&got, canonical, "{id}");
            let hash = Hash(Sha256::digest(&got).into());
            assert_eq!(Some(hash.to_string()), expected.sha256, "{id}");
        }
        (Err(error), None) => assert_eq!(Some(error.code.as_str()), expected.error.as_deref(), "{id}"),
        (got, _) => panic!("{id}: {got:?}"),
    }
}

#[test]
fn all_vectors_in_both_columns() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 83);
    for (id, input, in_jcs, in_strict) in &vectors {
        check(id, jcs(input), in_jcs);
        check(id, Canonical::parse(input).map(|c| c.0), in_strict);
        if let Some(canonical) = &in_strict.canonical {
            assert_eq!(is_canonical(canonical.as_bytes()), Ok(()), "{id}");
            assert!(scan::text_is_canonical(canonical), "{id}");
            assert_eq!(is_canonical(input).is_ok(), input == canonical.as_bytes(), "{id}");
            assert_eq!(hash_payload(input).ok().map(|h| h.to_string()), in_strict.sha256, "{id}");
        }
    }
}

fn code(text: &str) -> CanonicalCode {
    Canonical::parse(text.as_bytes()).unwrap_err().code
}

#[test]
fn hostile_texts_are_errors_and_no_crashes() {
    let million = 1_000_000;
    assert_eq!(code(&"[".repeat(million)), CanonicalCode::TooDeep);
    assert_eq!(code(&r#"{"a":"#.repeat(million)), CanonicalCode::TooDeep);
    assert_eq!(is_canonical("[".repeat(million).as_bytes()).unwrap_err().code, CanonicalCode::TooDeep);
    assert_eq!(code(&"9".repeat(million)), CanonicalCode::NumberOverflow);
    assert_eq!(code(&format!("0.{}1", "0".repeat(300))), CanonicalCode::FloatOutOfDomain);
    assert_eq!(code(&format!("1e{}", "9".repeat(million))), CanonicalCode::NumberOverflow);
    assert_eq!(Canonical::parse(format!("1e-{}", "9".repeat(million)).as_bytes()).unwrap().as_str(), "0");
    assert_eq!(code(&format!("\"{}", "x".repeat(million))), CanonicalCode::InvalidJson);
    let keys: Vec<String> = (0..100_000).rev().map(|n| format!("\"{n}\":{n}")).collect();
    assert!(Canonical::parse(format!("{{{}}}", keys.join(",")).as_bytes()).is_ok());
}

#[test]
fn errors_say_where() {
    for (text, code, offset) in [
        (r#"{"b":1,"a":2,"\u0062":3,"a":4}"#, CanonicalCode::DuplicateKey, 13),
        (r#"["x","\ud800"]"#, CanonicalCode::LoneSurrogate, 6),
        (r#"{"a":[1,9007199254740993]}"#, CanonicalCode::IntegerOutOfRange, 8),
        ("{} x", CanonicalCode::InvalidJson, 3),
        ("\u{feff}{}", CanonicalCode::InvalidJson, 0),
        ("[1.]", CanonicalCode::InvalidJson, 3),
    ] {
        assert_eq!(Canonical::parse(text.as_bytes()), Err(CanonicalError { code, offset }), "{text}");
    }
    let spelled = is_canonical(br#"{"a":1.0}"#).unwrap_err();
    assert_eq!((spelled.code, spelled.offset), (CanonicalCode::NotCanonical, 6));
    assert_eq!(spelled.to_string(), "the text is valid JSON but not in canonical spelling (byte 6)");
}

#[test]
fn the_deepest_text_has_a_value() {
    let text = format!("{}{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
    let canonical = Canonical::parse(text.as_bytes()).unwrap();
    assert_eq!(canonical.value().to_string(), text);
    assert!(fits_at_depth(&canonical, 0));
    assert!(!fits_at_depth(&canonical, 1));
    assert_eq!(code(&format!("[{text}]")), CanonicalCode::TooDeep);
}

#[test]
fn of_a_value_refuses_what_has_no_canonical_form() {
    #[derive(serde::Serialize)]
    struct Twice {
        a: u8,
        #[serde(flatten)]
        more: BTreeMap<&'static str, u8>,
    }
    let twice = Twice { a: 1, more: BTreeMap::from([("a", 2)]) };
    assert_eq!(Canonical::of(&twice).unwrap_err().code, CanonicalCode::DuplicateKey);
    assert_eq!(Canonical::of(&u64::MAX).unwrap_err().code, CanonicalCode::IntegerOutOfRange);
    assert_eq!(Canonical::of(&BTreeMap::from([((1, 2), 3)])).unwrap_err().code, CanonicalCode::NotSerializable);
    assert_eq!(Canonical::of(&("\u{fb33}", 12.50, 0.1_f32)).unwrap().as_str(), "[\"\u{fb33}\",12.5,0.1]");
}

#[test]
fn only_canonical_text_is_deserialised() {
    let canonical = Canonical::parse(br#"{"b":[1,2.5],"a":null}"#).unwrap();
    let json = serde_json::to_string(&canonical).unwrap();
    assert_eq!(json, r#""{\"a\":null,\"b\":[1,2.5]}""#);
    assert_eq!(serde_json::from_str::<Canonical>(&json).unwrap(), canonical);
    assert!(serde_json::from_str::<Canonical>(r#""{\"b\":1,\"a\":2}""#).is_err());
    let config = bincode::config::standard();
    let bytes = bincode::serde::encode_to_vec(&canonical, config).unwrap();
    assert_eq!(bincode::serde::decode_from_slice::<Canonical, _>(&bytes, config).unwrap(), (canonical, bytes.len()));
    let bytes = bincode::serde::encode_to_vec(" 1", config).unwrap();
    assert!(bincode::serde::decode_from_slice::<Canonical, _>(&bytes, config).is_err());
}

#[test]
fn escaped_keys_sort_by_what_they_mean() {
    // As bytes of the text the backslash (5c) of the first would sort after the Z (5a) of the second.
    assert_eq!(is_canonical(br#"{"\n":1,"Z":2}"#), Ok(()));
    assert!(is_canonical(br#"{"Z":1,"\n":2}"#).is_err());
    assert_eq!(is_canonical("{\"\\\\\":1,\"\u{10000}\":2,\"\u{e000}\":3}".as_bytes()), Ok(()));
}

#[test]
fn every_character_has_one_escape_or_none() {
    for code in 0..0x100_u32 {
        let character = char::from_u32(code).unwrap();
        let mut spellings = vec![format!("\"{character}\""), format!("\"\\{character}\"")];
        spellings.extend([format!("\"\\u{code:04x}\""), format!("\"\\u{code:04X}\"")]);
        spellings.dedup();
        let canonical = rewrite::rewrite(&spellings[2], Profile::Strict).unwrap();
        assert!(scan::text_is_canonical(&canonical), "{canonical}");
        for text in spellings {
            let rewritten = rewrite::rewrite(&text, Profile::Strict);
            assert_eq!(scan::text_is_canonical(&text), rewritten.as_ref() == Ok(&text), "{text}");
        }
    }
}

/// Values with the awkward characters and numbers in them.
fn any_value() -> impl Strategy<Value = serde_json::Value> {
    let word = prop::collection::vec(
        prop_oneof![
            Just('a'),
            Just('b'),
            Just('"'),
            Just('\\'),
            Just('/'),
            Just('\n'),
            Just('\u{1}'),
            Just('\u{1f}'),
            Just('\u{7f}'),
            Just('é'),
            Just('\u{e000}'),
            Just('\u{ffff}'),
            Just('\u{10000}'),
            any::<char>()
        ],
        0..6,
    )
    .prop_map(String::from_iter);
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        (-9_007_199_254_740_991_i64..=9_007_199_254_740_991).prop_map(Into::into),
        (-1e15..1e15).prop_filter_map("domain", |x: f64| (x.abs() >= 1e-4).then(|| x.into())),
        (-2.0..2.0).prop_filter_map("domain", |x: f64| (x.abs() >= 1e-4).then(|| x.into())),
        word.clone().prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::vec((word.clone(), inner), 0..6)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

/// RFC 8785 word for word.
fn naive(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => value.to_string(),
        Value::Number(number) => ryu_js::Buffer::new().format(number.as_f64().unwrap()).to_owned(),
        Value::Array(items) => format!("[{}]", items.iter().map(naive).collect::<Vec<_>>().join(",")),
        Value::Object(members) => {
            let mut members: Vec<_> =
                members.iter().map(|(k, v)| (k.encode_utf16().collect::<Vec<_>>(), k, v)).collect();
            members.sort_by(|left, right| left.0.cmp(&right.0));
            let member =
                |(_, k, v): &(Vec<u16>, &String, &Value)| format!("{}:{}", Value::String((*k).clone()), naive(v));
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
        }
    }
}

proptest! {
    #[test]
    fn the_form_is_the_naive_one_and_stable(value in any_value()) {
        let canonical = rewrite::rewrite(&serde_json::to_string_pretty(&value).unwrap(), Profile::Strict).unwrap();
        prop_assert_eq!(&canonical, &naive(&value));
        prop_assert!(scan::text_is_canonical(&canonical), "{}", canonical);
        prop_assert_eq!(rewrite::rewrite(&canonical, Profile::Strict).unwrap(), canonical);
    }

    /// One byte of a canonical text is changed, dropped or doubled: scanner and rewriter must agree about what is left.
    #[test]
    fn the_scanner_agrees_with_the_rewriter(value in any_value(), at in any::<prop::sample::Index>(), how in 0..3, byte in prop_oneof![
        any::<u8>(), Just(b'"'), Just(b'\\'), Just(b'0'), Just(b'e'), Just(b'.'), Just(b'-'), Just(b','), Just(b' '), Just(b'u')
    ]) {
        let mut bytes = Canonical::of(&value).unwrap().0.into_bytes();
        let at = at.index(bytes.len());
        match how {
            0 => bytes[at] = byte,
            1 => { bytes.remove(at); }
            _ => bytes.insert(at, byte),
        }
        if let Ok(text) = std::str::from_utf8(&bytes) {
            let rewritten = rewrite::rewrite(text, Profile::Strict);
            prop_assert_eq!(scan::text_is_canonical(text), rewritten.as_deref() == Ok(text), "{}", text);
        }
    }

    #[test]
    fn no_bytes_crash_it(bytes in prop::collection::vec(prop_oneof![
        any::<u8>(), Just(b'"'), Just(b'\\'), Just(b'u'), Just(b'd'), Just(b'8'), Just(b'0'), Just(b'{'), Just(b'['), Just(b':'), Just(b','), Just(b'}')
    ], 0..60)) {
        let parsed = Canonical::parse(&bytes);
        prop_assert_eq!(is_canonical(&bytes).is_ok(), parsed.is_ok_and(|c| c.as_str().as_bytes() == bytes));
        let _ = jcs(&bytes);
    }
}
