use super::*;

fn files(files: &[(&str, &str)]) -> Files {
    files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

fn node(name: &str) -> NodeName {
    name.parse().unwrap()
}

fn on(tree: &Tree, name: &str) -> Vec<String> {
    let here = tree.on(&node(name), |_| None, |_| None);
    here.volumes.iter().map(|(name, member)| format!("{name} at {}", member.path)).collect()
}

#[test]
fn volumes_are_where_their_files_say() {
    let tree = Tree::parse(&files(&[
        ("volumes/team.toml", "place = \"work/team\"\nstore = \"postgres://db\"\n[on.desk]\nplace = \"t\"\n"),
        ("volumes/notes.toml", ""),
        (
            "volumes/big.toml",
            "cache-size = \"20G\"\n[on.desk]\nshown = false\n[on.lap]\ncache-mode = \"on-demand\"\n",
        ),
        ("nodes/desk.toml", ""),
        ("nodes/lap.toml", ""),
        ("volumes/.team.toml.swp", "x"),
        ("volumes/README", "x"),
        ("elsewhere", "x"),
    ]))
    .unwrap();
    assert_eq!(on(&tree, "other"), ["big at big", "notes at notes", "team at work/team"]);
    assert_eq!(on(&tree, "desk"), ["notes at notes", "team at t"]);
    let here = tree.on(&node("lap"), |_| None, |_| None);
    let big = &here.volumes[&"big".parse().unwrap()];
    assert_eq!((big.cache_mode, big.cache_size.as_deref()), (CacheMode::OnDemand, Some("20G")));
    let team = &here.volumes[&"team".parse().unwrap()];
    assert_eq!((team.cache_mode, team.store.as_deref()), (CacheMode::Cached, Some("postgres://db")));
}

#[test]
fn former_names_of_cache_modes_are_understood() {
    for (text, mode) in [
        ("cache-mode = \"full\"", CacheMode::Full),
        ("cache-mode = \"cached\"", CacheMode::Cached),
        ("cache-mode = \"on-demand\"", CacheMode::OnDemand),
        ("role = \"complete\"", CacheMode::Full),
        ("role = \"cached\"", CacheMode::Cached),
        ("role = \"remote\"", CacheMode::OnDemand),
        ("", CacheMode::Cached),
    ] {
        let tree = Tree::parse(&files(&[("volumes/a.toml", text)])).unwrap();
        let here = tree.on(&node("any"), |_| None, |_| None);
        assert_eq!(here.volumes[&"a".parse().unwrap()].cache_mode, mode, "{text}");
    }
    let both = files(&[("volumes/a.toml", "role = \"complete\"\ncache-mode = \"full\"")]);
    let text = Tree::parse(&both).unwrap_err().to_string();
    assert!(text.starts_with("volumes/a.toml:") && text.contains("duplicate"), "{text}");
}

#[test]
fn nodes_come_to_a_volume_through_others() {
    let tree = Tree::parse(&files(&[
        ("volumes/team.toml", "through = \"gate\"\n[on.lap]\nthrough = \"near\"\n"),
        ("nodes/gate.toml", "address = \"gate.example:7070\"\n"),
        ("nodes/near.toml", "address = \"10.0.0.1:7070\"\n"),
        ("nodes/lap.toml", ""),
    ]))
    .unwrap();
    let through = |name: &str| {
        let here = tree.on(&node(name), |_| None, |_| None);
        here.volumes[&"team".parse().unwrap()].gateway.clone()
    };
    assert_eq!(through("lap").as_deref(), Some("10.0.0.1:7070"));
    assert_eq!(through("any").as_deref(), Some("gate.example:7070"));
    assert_eq!(through("gate"), None);
}

#[test]
fn people_have_numbers_of_their_own_on_each_node() {
    let tree = Tree::parse(&files(&[
        ("users.toml", "[users]\nada = 1000\nbob = 1001\n[groups]\nstaff = 50\n"),
        ("nodes/desk.toml", "[users]\nada = 2000\n[default]\nuser = \"guest\"\ngroup = 99\n"),
    ]))
    .unwrap();
    let account =
        |name: &str| (name == "bob" || name == "guest").then_some(if name == "bob" { 7 } else { 60 });
    let here = tree.on(&node("desk"), account, |_| None);
    assert_eq!([1000, 1001, 5].map(|stored| here.users.to_local(stored)), [2000, 7, 60]);
    assert_eq!([50, 5].map(|stored| here.groups.to_local(stored)), [NOBODY, 99]);
    assert!(Tree::default().on(&node("desk"), account, account).users.is_identity());
}

#[test]
fn configuration_error_is_one_line() {
    let gate = ("nodes/gate.toml", "");
    for (wrong, line) in [
        (vec![("volumes/a.toml", "plase = 1")], "volumes/a.toml:1: unknown field `plase`"),
        (vec![("volumes/a.toml", "\n\nplace = \"x\n")], "volumes/a.toml:3: "),
        (vec![("volumes/a.toml", "place = 5")], "volumes/a.toml:1: invalid type"),
        (vec![("volumes/a.toml", "cache-mode = \"big\"")], "volumes/a.toml:1: unknown variant `big`"),
        (vec![("volumes/a.toml", "place = \"../x\"")], "volumes/a.toml: `../x` is not a valid place"),
        (vec![("volumes/a.toml", "place = \".tree/x\"")], "`.tree` is reserved for the config volume"),
        (vec![("volumes/a.toml", "[on.lap]\n")], "volumes/a.toml: unknown node lap: create nodes/lap.toml"),
        (vec![("volumes/a.toml", "through = \"gate\""), gate], "nodes/gate.toml has no `address`"),
        (vec![("volumes/a b.toml", "")], "volumes/a b.toml: the volume's name \"a b\" is not allowed"),
        (
            vec![("volumes/a.toml", "place = \"x\""), ("volumes/b.toml", "place = \"x/y\"")],
            "volumes/b.toml: place",
        ),
        (
            vec![("volumes/a.toml", "place = \"x\""), ("volumes/b.toml", "place = \"/x/\"")],
            "volumes/b.toml: place",
        ),
        (vec![("nodes/a.toml", "[users]\nada = 1\n")], "nodes/a.toml: users.toml does not list user ada"),
        (
            vec![("users.toml", "[users]\nada = 1\nbob = 1\n")],
            "users.toml: ada and bob have the same number 1",
        ),
        (vec![("users.toml", "[users]\nada = 4294967295\n")], "users.toml: 4294967295 of ada"),
        (vec![("users.toml", "[users]\nada = -1\n")], "users.toml:2: "),
    ] {
        let text = Tree::parse(&files(&wrong)).unwrap_err().to_string();
        assert!(text.contains(line) && text.lines().count() == 1, "{text:?}, not {line:?}");
    }
}

#[test]
fn places_that_meet_on_one_node_only_are_found() {
    let text = Tree::parse(&files(&[
        ("volumes/a.toml", ""),
        ("volumes/b.toml", "[on.lap]\nplace = \"a/b\"\n"),
        ("nodes/lap.toml", ""),
    ]));
    assert!(text.unwrap_err().to_string().contains("a/b on lap overlaps the place of volume a"));
    // A common prefix of names is no overlap.
    let apart = files(&[
        ("volumes/a.toml", ""),
        ("volumes/b.toml", "place = \"a-b/c\""),
        ("volumes/c.toml", "place = \"ab\""),
    ]);
    assert!(Tree::parse(&apart).is_ok());
}

proptest::proptest! {
    #[test]
    fn arbitrary_configuration_does_not_panic(text in ".{0,200}", place in "\\PC{0,40}") {
        let place = format!("place = {place:?}");
        for file in ["volumes/a.toml", "nodes/a.toml", "users.toml"] {
            for text in [&text, &place] {
                if let Ok(tree) = Tree::parse(&files(&[(file, text)])) {
                    tree.on(&node("a"), |_| None, |_| None);
                }
            }
        }
    }
}
