//! The errors of new names, by directory.

use shunt_policy::{KnownCaller, MatchState, Names, NoContent, Op, Outcome, Policy};

fn policy(text: &str) -> Policy {
    Policy::parse(text, &Names::default()).unwrap()
}

/// Returns the error that the daemon gives for the creation of a name, 0 if it is allowed.
fn error_of(directory: &MatchState, name: &str, caller: &KnownCaller) -> u8 {
    let class = directory.enter(name.as_bytes()).class();
    let decide = |op| class.decide(op, caller, &NoContent).outcome;
    if class.hides() && decide(Op::Lookup) == Outcome::Hide {
        return 13;
    }
    match decide(Op::Create).name() {
        "allow" | "redact" => 0,
        "read-only" => 30,
        "deny (EPERM)" => 1,
        _ => 13,
    }
}

/// Returns the error of creating any name in a directory, according to its table.
fn error_inside(directory: &MatchState, uid: u32, gid: u32) -> u8 {
    let Some(table) = directory.class().directory_table(&directory.child_rules()) else { return 0 };
    let index = |bounds: &[u32], id: u32| bounds.iter().filter(|bound| **bound <= id).count() - 1;
    table.cells[index(&table.users, uid) * table.groups.len() + index(&table.groups, gid)][7]
}

const NAMES: [&str; 14] =
    ["a", "b", "a.jpg", "x.log", "secret", ".hidden", "5", "7", "300", "red", "ü", "*", "in", "ab"];

/// Rules and the directories in which every name fails for user 5 with this error.
const CASES: [(&str, &[(&str, u8)]); 17] = [
    ("path = \"/a/**\"\naction = \"read-only\"", &[("/a", 30), ("/a/b", 30), ("/", 0), ("/b", 0)]),
    ("path = \"/a/*\"\naction = \"deny\"", &[("/a", 13), ("/a/b", 0), ("/", 0)]),
    ("path = \"/a\"\naction = \"read-only\"", &[("/a", 0), ("/", 0)]),
    ("path = \"/**\"\nop = \"create\"\naction = \"deny\"\nerror = \"EPERM\"", &[("/", 1), ("/a/b", 1)]),
    ("path = \"/**\"\nop = \"write\"\naction = \"deny\"", &[("/", 0), ("/a", 0)]),
    ("path = \"/**\"\naction = \"hide\"\nexcept = { uid = 6 }", &[("/", 13), ("/a/b", 13)]),
    ("path = \"/**/in\"\naction = \"read-only\"", &[("/", 0), ("/a", 0), ("/a/in", 0)]),
    (
        "path = \"/a/**/in/*\"\naction = \"read-only\"",
        &[("/a", 0), ("/a/in", 30), ("/a/b/in", 30), ("/in", 0)],
    ),
    ("path = \"*.jpg\"\naction = \"deny\"", &[("/", 0), ("/a", 0)]),
    ("path = \"?*\"\naction = \"deny\"", &[("/", 0)]),
    ("path = \"/{uid}/**\"\naction = \"deny\"", &[("/", 0), ("/5", 13), ("/7", 0)]),
    ("path = \"/{gid}/**\"\naction = \"deny\"", &[("/", 0), ("/5", 0)]),
    ("path = \"/{team}/**\"\naction = \"deny\"", &[("/", 0), ("/red", 13), ("/blue", 0)]),
    // Of two rules the first decides; names between them differ.
    (
        "path = \"*.log\"\naction = \"allow\"\n[[rule]]\npath = \"/**\"\naction = \"read-only\"",
        &[("/", 0), ("/a", 0)],
    ),
    (
        "path = \"*.log\"\naction = \"read-only\"\n[[rule]]\npath = \"/**\"\naction = \"read-only\"",
        &[("/", 30), ("/a", 30)],
    ),
    // A hidden name fails with EACCES, the others with EROFS.
    (
        "path = \"*.log\"\naction = \"hide\"\n[[rule]]\npath = \"/**\"\naction = \"read-only\"",
        &[("/", 0), ("/a", 0)],
    ),
    // Rules that depend on more may precede the others.
    (
        "path = \"/**\"\ngroup = 9\naction = \"hide\"\n[[rule]]\npath = \"/**\"\naction = \"read-only\"",
        &[("/", 0), ("/a", 0)],
    ),
];

fn parse(rules: &str) -> Policy {
    policy(&format!("[ids.team]\nred = [5, \"10-12\"]\n\n[[rule]]\n{rules}\n"))
}

#[test]
fn directories_refuse_new_names() {
    for (rules, directories) in CASES {
        let policy = parse(rules);
        for (path, error) in directories {
            let directory = policy.match_path(path.as_bytes());
            assert_eq!(error_inside(&directory, 5, 5), *error, "{rules}: {path}");
        }
    }
}

#[test]
fn only_what_every_name_fails_with_is_refused() {
    let more = [
        "path = \"/a/*\"\nuid = [\"3-5\", 9]\nexcept = { gid = \"4-6\" }\naction = \"hide\"\n[[rule]]\npath = \"/a/**\"\n\
         gid = 5\naction = \"deny\"",
        "path = \"/*/{uid}\"\naction = \"allow\"\n[[rule]]\npath = \"/*/*\"\naction = \"hide\"",
        "path = \"/**\"\naudit = true\nop = \"create\"\naction = \"deny\"",
        "path = [\"/a/{team}/**\", \"/b/*\"]\nuid = 11\naction = \"read-only\"",
    ];
    let mut refused = 0;
    for rules in CASES.into_iter().map(|(rules, _)| rules).chain(more) {
        let policy = parse(rules);
        for path in ["/", "/a", "/a/b", "/a/in", "/a/b/in", "/b", "/5", "/5/a", "/red", "/a/red", "/a/red/5"]
        {
            let directory = policy.match_path(path.as_bytes());
            for (uid, gid) in (0..14).flat_map(|uid| (0..8).map(move |gid| (uid, gid))) {
                let error = error_inside(&directory, uid, gid);
                refused += usize::from(error != 0);
                // Supplementary groups, also unknown ones, and the program change nothing.
                for groups in [Some(vec![]), Some(vec![5, 9]), None] {
                    let caller = KnownCaller::new(uid, gid).with_groups(groups);
                    for name in NAMES {
                        let decided = error_of(&directory, name, &caller);
                        assert!(
                            error == 0 || error == decided,
                            "{rules}: {path}/{name} {uid} {gid}: {decided}"
                        );
                    }
                }
            }
        }
    }
    assert!(refused > 1000, "{refused}");
}

#[test]
fn directories_with_the_same_rules_differ_by_those_inside() {
    let policy = parse("path = \"/a/*\"\naction = \"read-only\"");
    let [a, b] = ["/a", "/b"].map(|path| policy.match_path(path.as_bytes()));
    assert_eq!(a.class(), b.class());
    assert_ne!(a.child_rules(), b.child_rules());
    assert!(b.child_rules().is_free() && a.class().is_free());
    let table = |state: &MatchState| state.class().directory_table(&state.child_rules()).unwrap();
    assert!(table(&a).refuses_creation() && !table(&b).refuses_creation());
    // The table of a file has no such error.
    assert!(!a.class().table().unwrap().refuses_creation());
}

#[test]
fn too_many_rules_inside_leave_the_table_of_the_directory() {
    let users: Vec<String> = (0..70).map(|uid| (uid * 2).to_string()).collect();
    let rules = format!(
        "path = \"/a\"\nuid = 3\naction = \"read-only\"\n[[rule]]\npath = \"/a/*\"\nuid = [{}]\naction = \"deny\"",
        users.join(", ")
    );
    let directory = parse(&rules).match_path(b"/a");
    let table = directory.class().directory_table(&directory.child_rules());
    assert_eq!(table, directory.class().table());
    assert!(table.is_some_and(|table| !table.refuses_creation()));
}
