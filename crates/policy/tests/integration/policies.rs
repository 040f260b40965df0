//! Policy files and the decisions that follow from them.

use std::sync::Arc;

use std::path::Path;

use shunt_policy::{KnownCaller, Names, NoContent, Op, Outcome, Policy};

fn names() -> Names {
    Names::parse("alice:x:1000:1000::/:/bin/sh\nbob:x:1001:1001::/:/bin/sh\nbroken\n", "media:x:44:alice\n")
}

fn policy(text: &str) -> Policy {
    Policy::parse(text, &names()).unwrap_or_else(|error| panic!("{error}"))
}

fn outcome(policy: &Policy, path: &str, op: Op, uid: u32) -> &'static str {
    policy
        .match_path(path.as_bytes())
        .class()
        .decide(op, &KnownCaller::new(uid, uid), &NoContent)
        .outcome
        .name()
}

const PHONE: &str = r#"
[ids.app]
"com.example.chat" = 10100
"com.example.shop" = [10101, "10200-10210"]

[[rule]]
path = "/Android/data/{app}/**"
action = "allow"

[[rule]]
path = "/Android/data/*/**"
except = { uid = 0 }
action = "hide"

[[rule]]
path = "*.jpg"
ignore-case = true
group = "media"
op = ["write", "delete"]
action = "deny"
error = "EPERM"
"#;

#[test]
fn an_app_sees_its_own_folder_only() {
    let policy = policy(PHONE);
    for (path, uid, expected) in [
        ("/Android/data/com.example.chat", 10100, "allow"),
        ("/Android/data/com.example.chat/deep/file", 10100, "allow"),
        ("/Android/data/com.example.chat", 10101, "hide"),
        ("/Android/data/com.example.shop/x", 10205, "allow"),
        ("/Android/data/com.example.other", 10100, "hide"),
        ("/Android/data/com.example.other", 0, "allow"),
        ("/Android/data", 10100, "allow"),
        ("/Android", 10100, "allow"),
    ] {
        assert_eq!(outcome(&policy, path, Op::Lookup, uid), expected, "{path} {uid}");
    }
    let data = policy.match_path(b"/Android/data");
    assert!(data.hides_names() && !policy.match_path(b"/Android").hides_names());
    assert!(!data.enter(b"com.example.chat").class().is_name_constant());
    assert!(data.class().is_name_constant() && data.class().is_free());
}

#[test]
fn the_first_rule_that_matches_decides() {
    let policy = policy(PHONE);
    let class = policy.match_path(b"/DCIM/a.JPG").class();
    let in_media = KnownCaller::new(1000, 1000).with_groups(Some(vec![44]));
    assert_eq!(class.decide(Op::Write, &in_media, &NoContent).outcome.name(), "deny (EPERM)");
    assert_eq!(class.decide(Op::Read, &in_media, &NoContent).outcome, Outcome::Allow);
    assert_eq!(class.decide(Op::Write, &KnownCaller::new(1000, 1000), &NoContent).outcome, Outcome::Allow);
    assert!(class.is_name_constant(), "the name is for all");
    // Unknown properties count against the caller.
    let nobody_knows = class.decide(Op::Write, &KnownCaller::new(1000, 1000).with_groups(None), &NoContent);
    assert!(nobody_knows.is_uncertain && nobody_knows.outcome.name() == "deny (EPERM)");
}

#[test]
fn names_without_rules_need_no_decision() {
    let policy = policy("[[rule]]\npath = \"/a/b/**\"\naction = \"read-only\"");
    assert!(policy.match_path(b"/c").is_free() && !policy.match_path(b"/a").is_free());
    assert!(policy.match_path(b"/a").class().is_free() && !policy.match_path(b"/a/b").class().is_free());
    assert!(Policy::empty().root().is_free());
    assert_eq!(policy.match_path(b"/x/y"), policy.match_path(b"/c"));
    assert_ne!(policy.match_path(b"/a"), policy.match_path(b"/c"));
    assert_eq!(outcome(&policy, "/a/b/c", Op::Write, 5), "read-only");
    assert_eq!(outcome(&policy, "/a/b/c", Op::Read, 5), "allow");
}

#[test]
fn programs_are_told_apart() {
    let policy =
        policy("[[rule]]\npath = \"/x\"\nexcept = { exe = \"/usr/bin/gallery\" }\naction = \"deny\"");
    let class = policy.match_path(b"/x").class();
    let read = |caller: &KnownCaller| class.decide(Op::Read, caller, &NoContent);
    assert_eq!(read(&KnownCaller::new(1, 1).with_program("/usr/bin/gallery")).outcome, Outcome::Allow);
    assert_eq!(read(&KnownCaller::new(1, 1).with_program("/bin/cat")).outcome.name(), "deny (EACCES)");
    let unknown = read(&KnownCaller::new(1, 1));
    assert!(unknown.is_uncertain && unknown.outcome.name() == "deny (EACCES)");
}

#[test]
fn content_decides_where_it_is_asked_for() {
    let policy = policy(
        "[[rule]]\npath = \"*\"\ncontent = { offset = 1, bytes = \"45 4c\" }\naction = \"deny\"\n\
         [[rule]]\npath = \"/p/**\"\naction = \"redact\"\n",
    );
    let class = policy.match_path(b"/p/x").class();
    let read = |bytes: &[u8]| class.decide(Op::Read, &KnownCaller::new(1, 1), bytes).outcome.name();
    assert_eq!(read(b"\x7fELF"), "deny (EACCES)");
    assert_eq!(read(b"\xff\xd8\xff\xe0"), "redact");
    assert_eq!(read(b"text"), "allow");
    assert!(class.depends_on_content() && class.redacts() && !class.is_name_constant());
}

#[test]
fn redaction_applies_regardless_of_later_contents() {
    let policy = policy(
        "[[rule]]\npath = \"*\"\nuid = 1\naction = \"redact\"\n\
         [[rule]]\npath = \"*\"\ncontent = \"application/pdf\"\naction = \"redact\"\nbytes = [[0, 9]]\n\
         [[rule]]\npath = \"*\"\nuid = 2\naction = \"redact\"\nbytes = [[2, 4]]\n",
    );
    let class = policy.match_path(b"/p/x").class();
    let read = |uid, bytes: &[u8]| class.decide(Op::Read, &KnownCaller::new(uid, 1), bytes);
    let (first, third) = (read(1, b"text"), read(2, b"text"));
    assert_eq!((first.outcome, third.outcome.name()), (Outcome::Allow, "redact"));
    let seen = |redaction: &Option<Arc<shunt_policy::Redaction>>, bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        shunt_policy::redact::find(redaction.as_ref().unwrap(), &&bytes[..]).unwrap().apply(0, &mut bytes);
        bytes
    };
    // The redaction does not depend on the file's current contents.
    assert_eq!(first.redaction, read(1, b"").redaction);
    for (bytes, one, other) in [
        (&b"text and more"[..], &b"text and more"[..], &b"te\0\0 and more"[..]),
        (b"%PDF-and more", b"\0\0\0\0\0\0\0\0\0more", b"\0\0\0\0\0\0\0\0\0more"),
    ] {
        assert_eq!((&seen(&first.redaction, bytes)[..], &seen(&third.redaction, bytes)[..]), (one, other));
    }
}

#[test]
fn audits_go_on_to_the_next_rule() {
    let policy = policy(
        "[[rule]]\npath = \"/**\"\naction = \"audit\"\n[[rule]]\npath = \"/a\"\naction = \"deny\"\naudit = true\n",
    );
    let decision = policy.match_path(b"/a").class().decide(Op::Read, &KnownCaller::new(1, 1), &NoContent);
    assert_eq!((decision.audit, decision.rule), (vec![0, 1], Some(1)));
}

#[test]
fn mistakes_are_told_with_their_place() {
    for (text, expected) in [
        (
            "[[rule]]\npath = \"/a\"\naction = \"alow\"",
            "line 3, column 10: unknown action `alow`; use one of",
        ),
        (
            "[[rule]]\npath = \"a/b\"\naction = \"hide\"",
            "line 2, column 8: \"a/b\": the path does not start with a slash; write \"/a/b\"",
        ),
        ("[[rule]]\naction = \"hide\"", "line 1, column 1: the rule has no `path`"),
        ("[[rule]]\npath = \"/a\"", "line 1, column 1: the rule has no `action`"),
        ("x = ", "line 1, column 5: invalid TOML: "),
        ("[[rules]]", "line 1, column 3: unknown key `rules`"),
        ("[[rule]]\npath=\"/a\"\naction=\"deny\"\nuid=\"carol\"", "line 4, column 5: unknown user `carol`"),
        ("[[rule]]\npath=\"/a\"\naction=\"deny\"\nuids=5", "line 4, column 1: unknown key `uids`"),
        (
            "[[rule]]\npath=\"/a/{app}\"\naction=\"deny\"",
            "line 2, column 6: \"/a/{app}\": unknown variable {app}",
        ),
        (
            "[[rule]]\npath=\"/a\"\naction=\"hide\"\nop=\"read\"",
            "line 3, column 8: `hide` applies to all operations",
        ),
        ("[[rule]]\npath=\"/a\"\naction=\"deny\"\nop=\"reed\"", "line 4, column 4: unknown operation `reed`"),
        (
            "[[rule]]\npath=\"/a\"\naction=\"redact\"\nbytes=[[5,5]]",
            "line 4, column 8: this range of `bytes` is empty",
        ),
        (
            "[[rule]]\npath=\"/a\"\naction=\"deny\"\nuid=-1",
            "line 4, column 5: `uid` is out of range; use 0 to",
        ),
        ("[[rule]]\npath=\"/a\"\naction=\"deny\"\nuid=[]", "line 4, column 5: `uid` is empty"),
        ("rule = 5", "line 1, column 8: `rule` is a number, not a list of tables"),
        ("[ids.uid]\na = 5", "line 1, column 6: {uid} is predefined"),
        (
            "[[rule]]\npath=\"/a\"\naction=\"deny\"\ncontent=\"image/tiff\"",
            "line 4, column 9: unknown type `image/tiff`",
        ),
        ("[[rule]]\npath=\"/a[\"\naction=\"deny\"", "line 2, column 6: \"/a[\": `[` without closing `]`"),
    ] {
        let error = Policy::parse(text, &names()).expect_err(text).to_string();
        assert!(error.starts_with(expected), "{text}\n {error}\n {expected}");
        assert_eq!(error.lines().count(), 1);
    }
}

#[test]
fn explanations_name_the_rule() {
    let policy = policy(PHONE);
    let explain = |path: &str, uid| {
        let explanation = policy.explain(path.as_bytes(), Op::Read, &KnownCaller::new(uid, uid), &NoContent);
        explanation.show(&policy).to_string()
    };
    let own = explain("/Android/data/com.example.chat/x", 10100);
    assert!(own.starts_with("allow, by line 6, rule 1"), "{own}");
    let other = explain("/Android/data/com.example.chat/x", 10101);
    assert!(
        other.starts_with("hide, by line 10, rule 2, because /Android/data/com.example.chat is hidden"),
        "{other}"
    );
    assert!(
        other.contains("rule 1: the caller does not match: the path belongs to another owner"),
        "{other}"
    );
    assert!(explain("/Music/x", 5).starts_with("allow, by default: no rule decides"));
}

#[test]
fn every_example_is_a_policy() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policies");
    let mut read = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        Policy::parse(&text, &Names::default()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        read += 1;
    }
    assert!(read >= 3);
}

mod any {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_never_panics(text in "[\\[\\]{}=\"/*a-z0-9 \n.,]{0,200}") {
            let _ = Policy::parse(&text, &names());
        }

        #[test]
        fn a_rule_of_any_values_never_panics(path in ".{0,40}", uid in ".{0,10}", bytes in ".{0,20}") {
            let text = format!(
                "[[rule]]\npath = {path:?}\nuid = {uid:?}\ncontent = {{ bytes = {bytes:?} }}\naction = \"hide\""
            );
            let _ = Policy::parse(&text, &names());
        }

        #[test]
        fn places_decide_as_paths_do(parts in proptest::collection::vec("[ab]{1,2}", 0..6)) {
            let policy = policy(
                "[[rule]]\npath = [\"/a/**/b\", \"/b/*/**\", \"aa\"]\naction = \"deny\"",
            );
            let path = format!("/{}", parts.join("/"));
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            let expected = matches!(&parts[..], ["a", .., "b"] | ["b", _, ..] | [.., "aa"]);
            prop_assert_eq!(!policy.match_path(path.as_bytes()).class().is_free(), expected);
        }
    }
}

#[test]
fn a_graft_is_a_directory_of_which_nothing_is_decided() {
    let graft = "[[rule]]\npath = \"/data/cache\"\naction = \"graft\"\n";
    let all = policy(&format!("{graft}[[rule]]\npath = [\"*.jpg\", \"/**\"]\naction = \"read-only\"\n"));
    assert_eq!(all.grafts().collect::<Vec<_>>(), [Path::new("/data/cache")]);
    for (path, expected) in [
        ("/data/cache", "allow"),
        ("/data/cache/x/a.jpg", "allow"),
        ("/data", "read-only"),
        ("/data/cached", "read-only"),
    ] {
        assert_eq!(outcome(&all, path, Op::Write, 5), expected, "{path}");
    }
    assert!(all.match_path(b"/data/cache/x").class().is_free());
    // A caller allowed by an earlier rule is also allowed below the graft.
    policy(&format!("[[rule]]\npath = \"/data/{{uid}}/**\"\nuid = 5\naction = \"allow\"\n{graft}"));
}

#[test]
fn rules_that_a_graft_would_silence_are_refused() {
    let graft = "[[rule]]\npath = \"/data/cache\"\naction = \"graft\"\n";
    let rule = |path: &str, action: &str| format!("[[rule]]\npath = \"{path}\"\naction = \"{action}\"\n");
    for (text, expected) in [
        (
            rule("/data/cache/secret", "hide") + graft,
            "line 4, column 1: cannot graft /data/cache: rule 1 (line 1, hide) comes first",
        ),
        (rule("*.key", "deny") + graft, "comes first and applies to it or to names below it"),
        (rule("/data/*/x", "read-only") + graft, "comes first"),
        (rule("/**", "audit") + graft, "comes first"),
        (rule("/data", "hide") + graft, "rule 1 (line 1) may hide its ancestor /data"),
        (graft.to_owned() + &rule("/data", "hide"), "rule 2 (line 4) may hide its ancestor /data"),
        (
            graft.to_owned() + &rule("/data/cache/a/*.key", "hide"),
            "line 4, column 1: hide of /data/cache/a would never apply",
        ),
        (graft.to_owned() + graft, "graft of /data/cache would never apply"),
        (rule("/data/*", "graft"), "line 2, column 8: a graft is one directory"),
        (rule("/**", "graft"), "a graft is one directory"),
        (
            rule("/data", "graft") + "uid = 5\n",
            "line 3, column 10: a graft bypasses the policy, so it cannot depend on a caller",
        ),
        (rule("/data", "graft") + "op = \"read\"\n", "cannot depend on op"),
    ] {
        let error = Policy::parse(&text, &names()).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

#[test]
fn a_table_decides_as_the_class_does() {
    let policy = policy(
        &(PHONE.split("path = \"*.jpg\"").next().unwrap().to_owned()
            + r#"
path = "/pool/**"
uid = ["100-199", 300]
except = { gid = "5-6", uid = 150 }
op = ["write", "list"]
action = "read-only"

[[rule]]
path = "/pool/**"
gid = 6
action = "deny"
"#),
    );
    assert!(policy.has_tables());
    for path in ["/Android/data/com.example.shop/x", "/Android/data/other", "/pool/a", "/free"] {
        let class = policy.match_path(path.as_bytes()).class();
        let table = class.table().unwrap();
        let index = |bounds: &[u32], id: u32| bounds.iter().filter(|bound| **bound <= id).count() - 1;
        for uid in (0..400).chain(10090..10220).chain([u32::MAX - 1]) {
            for gid in 0..9 {
                let cell =
                    table.cells[index(&table.users, uid) * table.groups.len() + index(&table.groups, gid)];
                for (_, op) in Op::KEYWORDS {
                    let decided = class.decide(op, &KnownCaller::new(uid, gid), &NoContent).outcome;
                    let errno = match decided.name() {
                        "allow" => 0,
                        "hide" if op == Op::Create => 13,
                        "hide" => 2,
                        "read-only" => 30,
                        _ => 13,
                    };
                    assert_eq!(cell[op as usize], errno, "{path} {uid} {gid} {op:?}");
                }
            }
        }
    }
}

#[test]
fn rules_beyond_user_and_group_have_no_table() {
    for more in [
        "group = 5",
        "exe = \"/bin/true\"",
        "content = \"image/jpeg\"",
        "audit = true",
        "except = { group = 5 }",
    ] {
        let policy = policy(&format!("[[rule]]\npath = \"/a\"\n{more}\naction = \"deny\"\n"));
        assert!(!policy.has_tables() && policy.match_path(b"/a").class().table().is_none(), "{more}");
    }
    for rule in ["path = \"/{gid}/a\"\naction = \"hide\"", "path = \"/a\"\naction = \"redact\""] {
        assert!(!policy(&format!("[[rule]]\n{rule}\n")).has_tables(), "{rule}");
    }
    let many: Vec<String> = (0..70).map(|uid| (uid * 2).to_string()).collect();
    let many = policy(&format!("[[rule]]\npath = \"/a\"\nuid = [{}]\naction = \"deny\"\n", many.join(", ")));
    assert!(!many.has_tables() && many.match_path(b"/a").class().table().is_none());
}
