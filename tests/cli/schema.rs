//! `reversi schema`: the file itself, byte for byte, so that an editor's copy can be compared with it.
use crate::program::reversi;

// A2
#[test]
fn the_schema_is_printed_as_it_is() {
    let said = reversi(["schema"]).exits(0);
    assert_eq!(said.out, reversi_proto::manifest::SCHEMA);
    assert_eq!(said.err, "");
    let schema = said.json();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert!(schema["$id"].as_str().unwrap().ends_with("/schemas/manifest.schema.json"));
    assert_eq!(reversi(["schema", "--frobnicate"]).exits(64).out, "");
}
