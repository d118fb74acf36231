//! Settings: what is read, and what each mistake says.
use super::*;

fn mistakes(text: &str) -> Vec<String> {
    Config::parse(text, Path::new("/etc/reversi")).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn a_full_file() {
    let text = r#"
data_dir: data
listen: 127.0.0.1:0
metrics_listen: "[::1]:9000"
manifests: [tools.yaml, /srv/manifests]
upstreams:
  - name: files
    command: ./bin/server
    args: [--root, 1]
    env: { MODE: yes }
  - { name: web, url: "http://127.0.0.1:9001/mcp", prefix: web. }
checkpoint: { file: ../witness/reversi }
origin: host.example
"#;
    let config = Config::parse(text, Path::new("/etc/reversi")).unwrap();
    assert_eq!(config.data_dir, Path::new("/etc/reversi/data"));
    assert_eq!(config.listen.port(), 0);
    assert_eq!(config.metrics_listen.unwrap().port(), 9000);
    let manifests = vec![PathBuf::from("/etc/reversi/tools.yaml"), PathBuf::from("/srv/manifests")];
    assert_eq!(config.manifests, Source::Named(manifests));
    let [files, web] = &config.upstreams[..] else { panic!("two upstreams") };
    assert_eq!(files.command.as_deref(), Some("/etc/reversi/./bin/server"));
    assert_eq!(files.args, ["--root", "1"]);
    assert_eq!(files.env["MODE"], "yes");
    assert_eq!(web.prefix.as_deref(), Some("web."));
    assert_eq!(config.checkpoint_file(), Path::new("/etc/reversi/../witness/reversi"));
    assert_eq!(config.origin, "host.example");
    config.check().unwrap();
}

#[test]
fn an_empty_file_and_no_file_give_the_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::find(None, folder.path()).unwrap();
    assert_eq!(config, Config::parse("# nothing\n", folder.path()).unwrap());
    assert_eq!(config.listen.to_string(), "127.0.0.1:7421");
    assert_eq!(config.checkpoint_file(), folder.path().join("reversi-data.checkpoints"));
    assert_eq!(config.manifests, Source::Default(folder.path().join("manifests")));
}

#[test]
fn all_mistakes_are_reported_with_their_places() {
    let text = "data-dir: x\nlisten: localhost\nallow_plain_http: yes\nupstreams:\n  - name: a\n    url: http://h\n    \
                comand: x\n  - {}\norigin: a b\norigin: c\ncheckpoint: file\n";
    assert_eq!(
        mistakes(text),
        [
            "1:1: unknown field \"data-dir\"; known are data_dir, listen, metrics_listen, allow_plain_http, manifests, \
             upstreams, checkpoint, origin",
            "2:9: listen: expected an IP address and a port, like 127.0.0.1:7421",
            "3:19: allow_plain_http: expected true or false",
            "7:5: unknown field \"comand\"; known are name, command, args, env, url, prefix",
            "8:5: an upstream needs a name",
            "9:9: origin: expected 1 to 128 visible ASCII characters without +, like a host name",
            "10:1: the field \"origin\" stands twice; keep one of them",
            "11:13: checkpoint: expected an object, got a single value",
        ]
    );
}

#[test]
fn a_file_that_is_no_yaml_or_uses_what_is_not_needed() {
    assert!(mistakes("listen: [")[0].contains("not valid YAML"));
    assert!(mistakes("origin: &a x\ndata_dir: *a")[0].starts_with("2:11: aliases"));
    assert!(mistakes("origin: !!str x")[0].contains("tags"));
    assert!(mistakes("origin: x\n---\norigin: y")[0].contains("one document"));
    assert!(mistakes(&format!("{}{}", "[".repeat(40), "]".repeat(40)))[0].contains("nested"));
    assert_eq!(mistakes("- a"), ["1:1: the file: expected an object, got a list"]);
}

#[test]
fn no_mistake_repeats_a_value() {
    let text =
        "listen: s3cret\nupstreams:\n  - name: a\n    command: x\n    env: { KEY: [s3cret] }\n    args: s3cret\n";
    let all = mistakes(text).join("\n");
    assert!(all.contains("env") && all.contains("args") && !all.contains("s3cret"), "{all}");
}

#[test]
fn what_is_unsafe_is_refused() {
    let folder = Path::new("/srv");
    let open = Config { listen: "0.0.0.0:7421".parse().unwrap(), ..Config::defaults(folder) };
    assert!(open.check().unwrap_err().to_string().contains("allow_plain_http"));
    Config { allow_plain_http: true, ..open }.check().unwrap();
    let metrics = Config { metrics_listen: Some("10.0.0.1:1".parse().unwrap()), ..Config::defaults(folder) };
    assert!(metrics.check().unwrap_err().to_string().starts_with("metrics_listen"));
    for inside in ["/srv/reversi-data/c", "/srv/x/../reversi-data/c", "/srv/reversi-data"] {
        let config = Config { checkpoint_file: Some(inside.into()), ..Config::defaults(folder) };
        assert!(config.check().unwrap_err().to_string().contains("outside"), "{inside}");
    }
    let beside = Config { checkpoint_file: Some("/srv/reversi-data-witness".into()), ..Config::defaults(folder) };
    beside.check().unwrap();
}
