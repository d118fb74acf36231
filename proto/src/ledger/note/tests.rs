//! Notes by the specification's example, and every way a note can be wrong.
use ed25519_dalek::{SigningKey, VerifyingKey};

use super::*;

/// The example in C2SP's and Go's documentation of signed notes: made by neither this code nor this library.
const GO_KEY: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
const GO_NOTE: &str = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n\n\
    \u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";

fn checkpoint() -> Checkpoint {
    Checkpoint {
        origin: "reversi.example/main".to_owned(),
        ledger: LedgerId([0xab; 16]),
        size: 256,
        root: Hash([7; 32]),
    }
}

fn signer() -> Signer {
    Signer::new(&checkpoint().log(), SigningKey::from_bytes(&[9; 32])).unwrap()
}

#[test]
fn the_specifications_example_verifies() {
    let key: VerifierKey = GO_KEY.parse().unwrap();
    assert_eq!(key.to_string(), GO_KEY);
    let note = SignedNote::parse(GO_NOTE.as_bytes()).unwrap();
    assert_eq!(note.verify(&key), Ok(()));
    assert_eq!(note.to_string(), GO_NOTE);
    let edited = GO_NOTE.replacen("answer", "Answer", 1);
    let error = SignedNote::parse(edited.as_bytes()).unwrap().verify(&key).unwrap_err();
    assert_eq!(error, NoteError::BadSignature { key: "PeterNeumann+c74f20a3".to_owned() });
    assert!(matches!(note.checkpoint(), Err(NoteError::NoCheckpoint { .. })));
}

#[test]
fn a_checkpoint_is_signed_printed_parsed_and_verified() {
    let note = signer().sign(&checkpoint()).unwrap();
    let text = note.to_string();
    let ledger = "ab".repeat(16);
    let start =
        format!("reversi.example/main/{ledger}\n256\nBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=\n\n\u{2014} ");
    assert!(text.starts_with(&start), "{text}");
    let read = SignedNote::parse(text.as_bytes()).unwrap();
    assert_eq!(read, note);
    assert_eq!(read.checkpoint(), Ok(checkpoint()));
    assert_eq!(read.verify(signer().verifier()), Ok(()));
    assert!(signer().verifier().is_for(&checkpoint()));
    assert_eq!(signer().verifier().to_string().parse(), Ok(signer().verifier().clone()));
    assert_eq!(format!("{:?}", signer()), format!("Signer({})", signer().verifier().short()));
}

#[test]
fn signatures_by_others_are_ignored_but_never_enough() {
    let mut note = signer().sign(&checkpoint()).unwrap();
    let other = Signer::new("witness.example", SigningKey::from_bytes(&[8; 32])).unwrap();
    let namesake = Signer::new(&checkpoint().log(), SigningKey::from_bytes(&[8; 32])).unwrap();
    assert!(matches!(note.verify(other.verifier()), Err(NoteError::OtherKey { .. })));
    assert!(matches!(note.verify(namesake.verifier()), Err(NoteError::OtherKey { .. })));
    note.signatures.extend(other.sign(&checkpoint()).unwrap().signatures);
    let note = SignedNote::parse(note.to_string().as_bytes()).unwrap();
    assert_eq!(note.verify(signer().verifier()), Ok(()));
    assert_eq!(note.verify(other.verifier()), Ok(()));
    assert!(!other.verifier().is_for(&checkpoint()));
}

#[test]
fn a_malleated_signature_is_refused() {
    // The group's order, little-endian: S and S+L are the same scalar.
    let order = unhex::<32>("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010").unwrap();
    let mut note = signer().sign(&checkpoint()).unwrap();
    let mut carry = 0;
    for (byte, add) in note.signatures[0].bytes[32..].iter_mut().zip(order) {
        let sum = u16::from(*byte) + u16::from(add) + carry;
        *byte = sum.to_le_bytes()[0];
        carry = sum >> 8;
    }
    assert_eq!(carry, 0);
    assert!(matches!(note.verify(signer().verifier()), Err(NoteError::BadSignature { .. })));
}

#[test]
fn keys_of_small_order_are_refused() {
    let hex_keys = [
        "0100000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    ];
    for digits in hex_keys {
        let key = VerifyingKey::from_bytes(&unhex(digits).unwrap()).unwrap();
        assert!(matches!(VerifierKey::new("x", key), Err(NoteError::BadKey { .. })), "{digits}");
    }
}

#[test]
fn verifier_keys_have_one_spelling() {
    for wrong in [
        "PeterNeumann",
        "PeterNeumann+c74f20a3",
        "+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
        "PeterNeumann+c74f20a4+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
        "PeterNeumann+C74F20A3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
        "PeterNeuman+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
        "PeterNeumann+c74f20a3+AhpC2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
        "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10",
        "Peter Neumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
        " PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
    ] {
        assert!(wrong.parse::<VerifierKey>().is_err(), "{wrong}");
    }
}

#[test]
fn malformed_notes_are_refused() {
    let good = signer().sign(&checkpoint()).unwrap().to_string();
    assert!(SignedNote::parse(good.as_bytes()).is_ok());
    for wrong in [
        String::new(),
        "\n\n".to_owned(),
        good.trim_end().to_owned(),
        good.replace("\n\n", "\n"),
        good.replace('\n', "\r\n"),
        format!("{good}\n"),
        format!("{good}trailing\n"),
        good.replace('\u{2014}', "-"),
        good.replace("\u{2014} ", "\u{2014}  "),
        format!("{good}\u{2014} x AAAAAA==\n"),
        format!("{}{}", good, "\u{2014} x AAAAAAA=\n".repeat(100)),
        "x".repeat(NOTE_BYTES_MAX + 1),
    ] {
        assert!(matches!(SignedNote::parse(wrong.as_bytes()), Err(NoteError::Malformed { .. })), "{wrong:?}");
    }
    assert!(SignedNote::parse(b"\xff\n\n").is_err());
}

#[test]
fn checkpoints_have_one_spelling() {
    let good = checkpoint().text();
    assert_eq!(Checkpoint::parse(&good), Ok(checkpoint()));
    for wrong in [
        good.replace("\n256\n", "\n0256\n"),
        good.replace("\n256\n", "\n+256\n"),
        good.replace("\n256\n", "\n 256\n"),
        good.replace("\n256\n", "\n18446744073709551616\n"),
        good.replace("abab", "ABAB"),
        good.replace("/abab", "abab"),
        good.replace("Bwc=", "Bwd="),
        good.replace("Bwc=", "Bwc"),
        good.replace("BwcHBwc=", "Bwc="),
        good.replace("reversi.example/main", "reversi example"),
        good.replace("reversi.example/main", ""),
        format!("{good}extension\n"),
        good.trim_end().to_owned(),
    ] {
        assert!(Checkpoint::parse(&wrong).is_err(), "{wrong:?}");
    }
    let origin = "two words".to_owned();
    assert!(matches!(signer().sign(&Checkpoint { origin, ..checkpoint() }), Err(NoteError::BadName { .. })));
}

#[test]
fn keys_travel_as_pem() {
    let key = SigningKey::from_bytes(&[9; 32]);
    let private = private_key_to_pem(&key).unwrap();
    // What OpenSSL 3.0 writes for this key: 48 bytes, version 0, no public half.
    assert_eq!(
        *private,
        "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJ\n-----END PRIVATE KEY-----\n"
    );
    assert_eq!(private_key_from_pem(&private).unwrap(), key);
    let public = public_key_to_pem(&key.verifying_key()).unwrap();
    assert!(public.starts_with("-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA"), "{public}");
    assert_eq!(public_key_from_pem(&public), Ok(key.verifying_key()));
    assert!(public_key_from_pem(&private).is_err());
    let error = private_key_from_pem(&public).unwrap_err();
    assert!(error.to_string().starts_with("this is no Ed25519 private key in PEM: "), "{error}");
}
