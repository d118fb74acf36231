//! What a secret looks like: the prefixes of well-known keys, keys in URLs, values of fields that are named so, and text
//! that looks drawn by lot. Must not know manifests, and must never give away what it saw: an answer is a kind.

/// A kind of secret, by the prefix that its maker gives it, and how much must follow.
const PREFIXES: &[(&str, usize, &str)] = &[
    ("AGE-SECRET-KEY-", 20, "an age key"),
    ("AIza", 30, "a Google API key"),
    ("SG.", 30, "a SendGrid key"),
    ("dop_v1_", 40, "a DigitalOcean token"),
    ("ghp_", 20, "a GitHub token"),
    ("gho_", 20, "a GitHub token"),
    ("ghu_", 20, "a GitHub token"),
    ("ghs_", 20, "a GitHub token"),
    ("ghr_", 20, "a GitHub token"),
    ("github_pat_", 20, "a GitHub token"),
    ("glpat-", 16, "a GitLab token"),
    ("hf_", 30, "a Hugging Face token"),
    ("npm_", 30, "an npm token"),
    ("pypi-", 40, "a PyPI token"),
    ("rk_live_", 10, "a Stripe key"),
    ("rk_test_", 10, "a Stripe key"),
    ("rvk_", 24, "a Reversi access key"),
    ("shpat_", 20, "a Shopify token"),
    ("sk-ant-", 16, "a model provider's key"),
    ("sk-or-", 16, "a model provider's key"),
    ("sk-proj-", 16, "a model provider's key"),
    ("sk_live_", 10, "a Stripe key"),
    ("sk_test_", 10, "a Stripe key"),
    ("whsec_", 16, "a webhook secret"),
    ("xapp-", 10, "a Slack token"),
    ("ya29.", 20, "a Google access token"),
];

/// How fields are named that hold a secret.
const SECRET_NAMES: &[&str] = &[
    "access_key",
    "api_key",
    "apikey",
    "credential",
    "credentials",
    "passphrase",
    "passwd",
    "password",
    "private_key",
    "secret",
    "secret_key",
    "token",
];

/// How fields are named that look drawn by lot and may be read by anybody.
const PUBLIC_NAMES: &[&str] = &["checksum", "digest", "etag", "fingerprint", "hash", "md5", "sha", "signature"];

/// What the text looks like, if it or a part of it looks like a secret. `name` is the field that it is the value of.
pub(super) fn secret_kind(text: &str, name: Option<&str>) -> Option<&'static str> {
    if text.contains("-----BEGIN ") && text.contains("PRIVATE KEY") {
        return Some("a private key");
    }
    if let Some(kind) = words(text).find_map(known_kind) {
        return Some(kind);
    }
    if url_password(text) {
        return Some("a password in a URL");
    }
    let name = name.map(normal_name);
    let called = |names: &[&str]| name.as_deref().is_some_and(|name| names.iter().any(|end| name.ends_with(end)));
    let assigned = text.split_whitespace().filter_map(|word| word.split_once('='));
    let mut assigned = assigned.map(|(name, value)| (normal_name(name), value));
    if called(SECRET_NAMES) && secret_value(text)
        || assigned.any(|(name, value)| SECRET_NAMES.iter().any(|end| name.ends_with(end)) && secret_value(value))
    {
        return Some("the value of a secret");
    }
    let public = name.as_deref().is_some_and(|name| PUBLIC_NAMES.iter().any(|part| name.contains(part)));
    let by_lot = || text.split(|c: char| !c.is_ascii_alphanumeric()).any(drawn_by_lot) || base64_key(text);
    (!public && by_lot()).then_some("a random key")
}

/// The pieces that keys are made of.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || "_-.".contains(c))).map(|word| word.trim_matches('.'))
}

fn known_kind(word: &str) -> Option<&'static str> {
    let known = PREFIXES.iter().find(|(prefix, rest, _)| word.starts_with(prefix) && word.len() >= prefix.len() + rest);
    if let Some((_, _, kind)) = known {
        return Some(kind);
    }
    let upper = |rest: &str| rest.len() == 16 && rest.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
    if ["AKIA", "ASIA"].iter().any(|prefix| word.strip_prefix(prefix).is_some_and(upper)) {
        return Some("an AWS access key");
    }
    let slack = word.strip_prefix("xox").and_then(|rest| rest.get(1..)).and_then(|rest| rest.strip_prefix('-'));
    if slack.is_some_and(|rest| rest.len() >= 10) {
        return Some("a Slack token");
    }
    let mut parts = word.split('.');
    // Two parts of JSON in base64: `eyJ` is `{"`.
    let mut json = || parts.next().is_some_and(|part| part.len() >= 10 && part.starts_with("eyJ"));
    let signed = json() && json() && parts.next().is_some_and(|part| part.len() >= 10);
    signed.then_some("a JSON web token")
}

/// `scheme://user:password@host`, unless a placeholder stands for the password.
fn url_password(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let authority = rest.split(|c: char| c.is_whitespace() || "/?#\"'`".contains(c)).next().unwrap_or_default();
        let password =
            authority.rsplit_once('@').and_then(|(user, _)| user.split_once(':')).map(|(_, password)| password);
        password.is_some_and(|password| {
            let example = ["pass", "password", "secret", "pw", "xxx"].contains(&normal_name(password).as_str());
            password.len() >= 4 && !example && !password.starts_with(['<', '{', '[', '$', '*'])
        })
    })
}

fn normal_name(name: &str) -> String {
    name.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_ascii_lowercase().replace('-', "_")
}

/// Not a word such as `revoked`, nor a placeholder.
fn secret_value(value: &str) -> bool {
    let has = |class: fn(&u8) -> bool| value.bytes().any(|b| class(&b));
    value.len() >= 8
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_alphabetic)
        && !value.contains(char::is_whitespace)
        && !value.contains(['<', '{', '[', '$', '*'])
}

/// Base64 as it is written with `+` and `/`, which may cut it into short runs. Paths are made of words, it is not.
fn base64_key(text: &str) -> bool {
    const SHORTEST: usize = 36;
    let mut words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "+/=".contains(c)));
    words.any(|word| {
        let mixed = word.contains(|c: char| c.is_ascii_uppercase()) && word.contains(|c: char| c.is_ascii_lowercase());
        let cut = word.len() >= SHORTEST && word.contains(['+', '/']) && mixed && !has_words(word);
        cut && drawn_by_lot(&word.replace(['+', '/', '='], ""))
    })
}

/// Whether more small letters stand in a row than chance puts there.
fn has_words(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_lowercase()).any(|word| word.len() > 4)
}

/// Long, of many different characters, and jumping between letters and digits or large and small far more often than
/// names do. Text of hex digits alone is left out: ids and hashes are written so.
fn drawn_by_lot(run: &str) -> bool {
    const SHORTEST: usize = 20;
    const DISTINCT_MIN: u32 = 12;
    let run = run.strip_prefix("0x").unwrap_or(run);
    if run.len() < SHORTEST {
        return false;
    }
    let count = |class: fn(&u8) -> bool| run.bytes().filter(class).count();
    let (digits, upper) = (count(u8::is_ascii_digit), count(u8::is_ascii_uppercase));
    let lower = run.len() - digits - upper;
    let hex = run.bytes().all(|b| b.is_ascii_hexdigit()) && (upper == 0 || lower == 0);
    let distinct = run.bytes().fold(0_u128, |seen, b| seen | 1 << (b & 127)).count_ones();
    if hex || distinct < DISTINCT_MIN {
        return false;
    }
    let class = |b: u8| (b.is_ascii_digit(), b.is_ascii_uppercase());
    let jumps = run.as_bytes().windows(2).filter(|pair| class(pair[0]) != class(pair[1])).count();
    let often = |percent: usize| jumps * 100 >= (run.len() - 1) * percent;
    if upper > 0 && lower > 0 {
        digits > 0 && often(if has_words(run) { 45 } else { 30 })
    } else {
        run.len() >= 24 && digits >= 4 && often(30)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Put together, so that scanners of repositories do not take these for leaks.
    fn made(parts: &[&str]) -> String {
        parts.concat()
    }

    #[test]
    fn well_known_keys_are_named_by_their_kind() {
        let rest = "4eC39HqLyjWDarjtT1zdp7dc";
        for (key, kind) in [
            (made(&["sk_", "live_", rest]), "a Stripe key"),
            (made(&["AKIA", "IOSFODNN7EXAMPLE"]), "an AWS access key"),
            (made(&["gh", "p_", rest, "abcd"]), "a GitHub token"),
            (made(&["xo", "xb-1234567890-abc"]), "a Slack token"),
            (made(&["-----BEGIN ", "RSA PRIVATE KEY-----\nMIIE"]), "a private key"),
            (made(&["eyJhbGciOiJIUzI1NiJ9", ".", "eyJzdWIiOiIxMjM0In0", ".", "c2lnbmF0dXJlLi4"]), "a JSON web token"),
            (made(&["rvk_", "0123456789abcdef_", rest]), "a Reversi access key"),
            (made(&["sk-", "ant-api03-", rest]), "a model provider's key"),
            (made(&["postgres://app:", "hunter2hunter", "@db.example.com/x"]), "a password in a URL"),
        ] {
            assert_eq!(secret_kind(&key, None), Some(kind), "{key}");
            assert_eq!(secret_kind(&format!("Call it with (key={key})."), None), Some(kind), "{key}");
        }
    }

    #[test]
    fn random_text_is_seen_in_any_field_but_hashes() {
        for random in
            ["wJalrXUtnFEMI7K7MDENG2bPxRfiCYEXAMPLEKEY", "Zm9vYmFyMTIzNDU2Nzg5MGFi", "k3j9x8q2w7z1m5p0t4r6v8b2"]
        {
            assert_eq!(secret_kind(random, Some("key")), Some("a random key"), "{random}");
            assert_eq!(secret_kind(random, Some("content_sha256")), None, "{random}");
        }
    }

    #[test]
    fn a_field_that_is_called_a_secret_needs_less() {
        assert_eq!(secret_kind("hunter2hunter2", Some("db-password")), Some("the value of a secret"));
        assert_eq!(secret_kind("use api_key=9f86d081884c7d65 here", None), Some("the value of a secret"));
        for (word, name) in [("revoked", "token"), ("hunter2hunter2", "state"), ("token_count=12345678", "x")] {
            assert_eq!(secret_kind(word, Some(name)), None, "{word}");
        }
        assert_eq!(secret_kind("password=<8 characters> token=${TOKEN_12345}", None), None);
    }

    #[test]
    fn what_people_write_is_no_secret() {
        for text in [
            "Refund a charge, fully or in part; see https://docs.example.com/api/v2/refunds#create",
            "payments-team@example.com",
            "first.last+oncall-2024@mail.payments.example.com",
            "the charge still appears on the customer's statement",
            "123e4567-e89b-12d3-a456-426614174000",
            "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "40301964dd00",
            "createPaymentIntentForCustomerOfAccount2Version10",
            "OAuth2ClientCredentialsGrant2024Configuration",
            "NetSuite2023ProductionEnvironmentAccounting",
            "Base64LastChunkHandling, IsNormalizedSinkUtf16, AsyncRead01CompatExt, NormalizerUts46DataV1",
            "0xa1a2a3a4b1b2c1c2d1d2d3d4d5d6d7d8",
            "https://github.com/Marwes/combine/commit/5d402f6be0c1be4d69159d4df1d1d4589f5cd66e",
            "INTERNATIONAL_BANK_ACCOUNT_NUMBER_2024_CHANGE",
            "charge-{{args.order_id}}",
            "projects/my-project-12345/locations/europe-west1/keyRings/ring-2/cryptoKeys/key-7",
            "arn:aws:iam::123456789012:role/service-role/payments-refund-executor-2024",
            "Donaudampfschifffahrtsgesellschaftskapitaen",
            "sk-learn-based-preprocessing-pipeline-for-all",
            "2024-11-30T23:25:00.123456789+01:00",
            "00000000000000000000000000000000000000",
            "postgres://user:<password>@db.example.com/x, https://a:$PASS@b",
        ] {
            assert_eq!(secret_kind(text, None), None, "{text}");
        }
    }
}
