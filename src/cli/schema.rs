//! `reversi schema`: the JSON Schema of tool manifests, for editors and other programs. Must not know what it says.
use std::process::ExitCode;

use reversi_proto::manifest::SCHEMA;

use super::failure::Failure;
use super::out::Out;

/// Prints the JSON Schema of tool manifests.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
It is JSON Schema 2020-12. An editor with the YAML language server checks a manifest against a saved
copy when the file's first line names it:
  # yaml-language-server: $schema=../manifest.schema.json

Examples:
  reversi schema > manifest.schema.json")]
pub(super) struct SchemaArgs {}

pub(super) fn run(SchemaArgs {}: &SchemaArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    out.bytes(SCHEMA.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
