//! `reversi test`: what it finds, what it says, and how it ends.
use std::path::{Path, PathBuf};

use crate::program::{Said, command, said};

const PAGE: &str = include_str!("../../examples/contract/tests/payments.test.yaml");
const MANIFESTS: &str = include_str!("../../manifests/payments.yaml");
const PASSES: &str = "- {name: reads, tool: stripe.get_charge, expect_plan: skip}\n";
const FAILS: &str = "- {name: reads, tool: stripe.get_charge, expect_plan: compensate}\n";

/// A folder with files.
struct Project(tempfile::TempDir);

impl Project {
    fn new(files: &[(&str, &str)]) -> Self {
        let project = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            project.file(name, text);
        }
        project
    }

    /// With the page's manifests in the folder where they are looked for.
    fn with_manifests(files: &[(&str, &str)]) -> Self {
        let project = Self::new(files);
        project.file("manifests/payments.yaml", MANIFESTS);
        project
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.0.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        file
    }

    fn test(&self, args: &[&str]) -> Said {
        said(command(["test"].iter().chain(args)).current_dir(self.0.path()))
    }
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/contract")
}

// Q2 Q4 Q6
#[test]
fn the_pages_example_says_what_the_page_says() {
    let project = Project::with_manifests(&[("tests/payments.test.yaml", PAGE)]);
    let told = project.test(&["tests/payments.test.yaml", "-m", "manifests"]).exits(0);
    let page = "\
ok a charge is refunded with the right arguments, and the read-back is checked
ok a failed charge leaves nothing to undo
ok the same order twice is refused
not covered by any test: stripe.refund
3 passed
";
    assert_eq!((told.out.as_str(), told.err.as_str()), (page, ""));
    assert_eq!(project.test(&[]).exits(0).out, page, "found without being named");
}

#[test]
fn the_repositorys_manifests_pass_their_tests() {
    let told = said(command(["test", "--json"]).current_dir(example())).exits(0);
    let answer = told.json();
    assert_eq!((&answer["failed"], &answer["ok"]), (&0.into(), &true.into()));
    // The page's example has no case for it.
    assert_eq!(answer["not_covered"], serde_json::json!(["stripe.refund"]));
    let files: Vec<&str> =
        answer["cases"].as_array().unwrap().iter().map(|case| case["file"].as_str().unwrap()).collect();
    for file in ["tests/fs.test.yaml", "tests/mail.test.yaml", "tests/payments.test.yaml"] {
        assert!(files.contains(&file), "{files:?}");
    }
}

// Q4
#[test]
fn a_failure_says_expected_and_got_and_ends_with_1() {
    let cases = PAGE.replacen("{ charge_id: ch_1, amount: 2500 }", "{ charge_id: ch_2, amount: 2500 }", 1).replacen(
        "{ refunded: true }",
        "{ refunded: false }",
        1,
    );
    let project = Project::with_manifests(&[("tests/a.yaml", &cases)]);
    let told = project.test(&[]).exits(1);
    let expected = "\
FAIL a charge is refunded with the right arguments, and the read-back is checked
  tests/a.yaml:1
  expect_handle: the arguments of the undo stripe.refund differ
    charge_id: expected \"ch_2\", got \"ch_1\"
  expect_verified: expected that `verify_with` is accepted, got: not accepted
    refunded: expected true, got false
ok a failed charge leaves nothing to undo
ok the same order twice is refused
not covered by any test: stripe.refund
2 passed, 1 failed
";
    assert_eq!((told.out.as_str(), told.err.as_str()), (expected, ""));
    let answer = project.test(&["--json"]).exits(1).json();
    assert_eq!((&answer["ok"], &answer["passed"], &answer["failed"]), (&false.into(), &2.into(), &1.into()));
    let failure = &answer["cases"][0]["failures"][0];
    assert_eq!((&answer["cases"][0]["status"], &failure["field"]), (&"failed".into(), &"expect_handle".into()));
    let difference = serde_json::json!([{"path": "charge_id", "expected": "ch_2", "got": "ch_1"}]);
    assert_eq!(failure["differences"], difference);
}

#[test]
fn junit_is_written_beside_the_output() {
    let name = "a <b> & \"c\" ]]> \u{1b}[31m";
    let quoted = serde_json::to_string(name).unwrap();
    let cases = format!("[{{\"name\": {quoted}, \"tool\": \"stripe.get_charge\", \"expect_plan\": \"compensate\"}}]");
    let project = Project::with_manifests(&[("tests/a.json", &cases), ("tests/b.yaml", PASSES)]);
    // A control character is no name.
    let told = project.test(&["--junit", "out.xml"]).exits(1);
    assert!(told.out.contains("must not hold control characters"), "{}", told.out);
    assert!(!project.0.path().join("out.xml").exists());

    project.file("tests/a.json", &cases.replace("\\u001b", ""));
    let told = project.test(&["--junit", "out.xml"]).exits(1);
    assert!(told.out.ends_with("1 passed, 1 failed\n"), "{}", told.out);
    let xml = std::fs::read_to_string(project.0.path().join("out.xml")).unwrap();
    let expected = "\
<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<testsuites name=\"reversi test\" tests=\"2\" failures=\"1\" time=\"0\">
  <testsuite name=\"tests/a.json\" tests=\"1\" failures=\"1\" errors=\"0\" skipped=\"0\" time=\"0\">
    <testcase name=\"a &lt;b&gt; &amp; &quot;c&quot; ]]&gt; [31m\" classname=\"tests/a.json\" file=\"tests/a.json\" line=\"1\" time=\"0\">
      <failure message=\"expected compensate, got skip (read_only)\" type=\"expect_plan\">expect_plan: expected compensate, got skip (read_only)</failure>
    </testcase>
  </testsuite>
  <testsuite name=\"tests/b.yaml\" tests=\"1\" failures=\"0\" errors=\"0\" skipped=\"0\" time=\"0\">
    <testcase name=\"reads\" classname=\"tests/b.yaml\" file=\"tests/b.yaml\" line=\"1\" time=\"0\"/>
  </testsuite>
</testsuites>
";
    assert_eq!(xml, expected);
    project.test(&["--junit", "no/such/folder.xml"]).exits(1);
    project.test(&["--junit", "tests"]).exits(64);
}

// Q1 - short of the policy's own tests
#[test]
fn tests_are_found_below_the_settings() {
    let settings = "manifests: [tools]\n";
    let project = Project::new(&[
        ("sub/reversi.config.yaml", settings),
        ("sub/tools/payments.yaml", MANIFESTS),
        ("sub/tests/b.yaml", PASSES),
        ("sub/tests/a.test.yaml", PASSES),
        ("sub/tests/deep/er/c.json", r#"{"name": "json", "tool": "stripe.get_charge"}"#),
        ("sub/tests/d.yml", PASSES),
        ("sub/tests/.hidden/x.yaml", "nonsense"),
        ("sub/tests/.y.yaml", "nonsense"),
        ("sub/tests/notes.txt", "nonsense"),
        ("sub/tests/refunds.policy.test.yaml", "nonsense"),
    ]);
    std::os::unix::fs::symlink("..", project.0.path().join("sub/tests/deep/round")).unwrap();
    std::os::unix::fs::symlink("nowhere", project.0.path().join("sub/tests/dangling")).unwrap();
    let told = project.test(&["--config", "sub/reversi.config.yaml", "--json"]).exits(0);
    let answer = told.json();
    let files: Vec<&str> =
        answer["cases"].as_array().unwrap().iter().map(|case| case["file"].as_str().unwrap()).collect();
    assert_eq!(files, ["sub/tests/a.test.yaml", "sub/tests/b.yaml", "sub/tests/d.yml", "sub/tests/deep/er/c.json"]);
    let skipped = "sub/tests/refunds.policy.test.yaml: skipped, because this version has no policy tests yet\n";
    assert_eq!(told.err, skipped);
    let named = project.test(&["sub/tests", "sub/tests/b.yaml", "-m", "sub/tools/payments.yaml", "--json"]).exits(0);
    assert_eq!(named.json(), answer, "a file that is named twice is run once");
}

#[test]
fn what_can_not_be_tested_is_told() {
    let project =
        Project::with_manifests(&[("tests/a.yaml", FAILS), ("empty/x.txt", ""), ("policy/a.policy.test.yaml", "")]);
    project.file("broken/m.yaml", "- {tool: t, efect: read_only, permission: p}\n");
    project.file("tests.yaml", "- {name: n, tol: t}\n");
    let fifo = project.0.path().join("pipe.yaml");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for (args, words) in [
        (&["nowhere.yaml"][..], "nowhere.yaml can't be read"),
        (&["empty"], "there is no contract test in what was read"),
        (&["policy"], "there is no contract test in what was read"),
        (&["--filter", "writes"], "no contract test has a name with \"writes\" in it"),
        (&["--config", "nowhere.yaml"], "nowhere.yaml can't be read"),
        (&["pipe.yaml"], "pipe.yaml is a pipe, and only regular files are read"),
    ] {
        let told = project.test(args).exits(1);
        assert!(told.out.is_empty() && told.err.contains(words), "{args:?}: {told:?}");
    }
    for (path, words) in [("empty", "there is no .yaml, .yml or .json file"), ("nowhere", "there is no such file")] {
        let told = project.test(&["tests/a.yaml", "-m", path]).exits(1);
        assert!(told.out.contains(words) && told.err == "1 mistake\n", "{path}: {told:?}");
    }
    // All mistakes of manifests and of test files, as validate shows them.
    let told = project.test(&["tests.yaml", "-m", "broken"]).exits(1);
    let expected = "\
broken/m.yaml:1:3: [0]: the field `effect` is missing
broken/m.yaml:1:13: [0].efect: unknown field \"efect\" (did you mean `effect`?)
tests.yaml:1:3: [0]: the field `tool` is missing
tests.yaml:1:13: [0].tol: unknown field \"tol\" (did you mean `tool`?)
";
    assert_eq!((told.out.as_str(), told.err.as_str()), (expected, "4 mistakes\n"));
    let answer = project.test(&["tests.yaml", "-m", "broken", "--json"]).exits(1).json();
    assert_eq!((&answer["ok"], answer["diagnostics"].as_array().unwrap().len()), (&false.into(), 4));

    let alone = Project::with_manifests(&[]);
    assert!(alone.test(&[]).exits(1).err.contains("there is no folder tests: name the test files"));
    alone.test(&["--frobnicate"]).exits(64);
}

/// A test that is left out without a word looks like one that passed.
#[test]
fn what_is_named_like_a_test_and_can_not_be_read_is_told() {
    let project = Project::with_manifests(&[("tests/a.yaml", PASSES), ("tests/x.txt", "")]);
    let tests = project.0.path().join("tests");
    // Neither is named like a test, and a folder may lead back to itself.
    std::os::unix::fs::symlink("nowhere", tests.join("README")).unwrap();
    std::os::unix::fs::symlink(".", tests.join("up")).unwrap();
    project.test(&[]).exits(0);
    for (name, target, words) in [
        ("gone.yaml", "nowhere.yaml", "tests/gone.yaml can't be read"),
        ("circle.json", "circle.json", "tests/circle.json can't be read"),
        ("device.yml", "/dev/null", "tests/device.yml is a device, and only regular files"),
    ] {
        std::os::unix::fs::symlink(target, tests.join(name)).unwrap();
        let told = project.test(&[]).exits(1);
        assert!(told.out.is_empty() && told.err.contains(words), "{name}: {told:?}");
        std::fs::remove_file(tests.join(name)).unwrap();
    }
}

#[test]
fn some_cases_can_be_chosen_and_coverage_stays() {
    let project = Project::with_manifests(&[("tests/a.yaml", PAGE)]);
    let told = project.test(&["--filter", "order twice"]).exits(0);
    assert_eq!(told.out, "ok the same order twice is refused\nnot covered by any test: stripe.refund\n1 passed\n");
}

#[test]
fn names_can_not_steer_a_terminal_nor_break_a_line() {
    let cases = "- name: |\n    two\n    lines \u{202e}turned\n  tool: stripe.get_charge\n";
    let project = Project::with_manifests(&[("tests/a.yaml", cases)]);
    let told = project.test(&[]).exits(0);
    assert!(told.out.starts_with("ok two lines \u{fffd}turned\n"), "{}", told.out);
}
