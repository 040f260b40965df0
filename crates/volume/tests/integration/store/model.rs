//! Reference model of a store, to compare the engines with: complete states, validated as a whole.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use shunt_volume::id::{ObjectId, Seq};
use shunt_volume::object::{Kind, LinkName};
use shunt_volume::store::{MetaStore, Mutation, Precondition, Transaction};

use crate::store::builders::*;
use crate::store::engines::Fresh;

#[derive(Clone, Default)]
struct Model {
    /// Kind and mode of each object.
    objects: BTreeMap<ObjectId, (Kind, u16)>,
    links: BTreeMap<LinkName, (ObjectId, Seq)>,
    head: u64,
}

impl Model {
    fn new() -> Self {
        Self { objects: BTreeMap::from([(ROOT, (Kind::Directory, 0o644))]), ..Self::default() }
    }

    fn names_of(&self, id: ObjectId) -> usize {
        self.links.values().filter(|(child, _)| *child == id).count()
    }

    fn is_empty(&self, id: ObjectId) -> bool {
        !self.links.keys().any(|at| at.parent == id)
    }

    fn is_directory(&self, id: ObjectId) -> bool {
        self.objects.get(&id).is_some_and(|object| object.0 == Kind::Directory)
    }

    fn holds(&self, condition: &Precondition) -> bool {
        match condition {
            Precondition::Exists(id) => self.objects.contains_key(id),
            Precondition::Link(at, expected) => self.links.get(at) == expected.as_ref(),
            Precondition::Empty(id) => self.is_directory(*id) && self.is_empty(*id),
            Precondition::Field(..) => unreachable!("not made here"),
        }
    }

    /// Applies a mutation. Returns whether it was possible.
    fn change(&mut self, mutation: &Mutation) -> bool {
        match mutation {
            Mutation::Make(object) => self.objects.insert(object.id, (object.kind, object.mode)).is_none(),
            Mutation::SetMode(id, mode) => self.objects.get_mut(id).map(|object| object.1 = *mode).is_some(),
            Mutation::Link(at, child) => {
                let fits = *child != ROOT
                    && self.is_directory(at.parent)
                    && self.objects.contains_key(child)
                    && !(self.is_directory(*child) && self.names_of(*child) > 0)
                    && !self.links.contains_key(at);
                fits && self.links.insert(at.clone(), (*child, Seq(self.head + 1))).is_none()
            }
            Mutation::Unlink(at) => self.links.remove(at).is_some(),
            _ => unreachable!("not made here"),
        }
    }

    fn apply(&mut self, item: &Transaction) -> bool {
        if !item.preconditions.iter().all(|condition| self.holds(condition)) {
            return false;
        }
        let mut next = self.clone();
        if !item.mutations.iter().all(|mutation| next.change(mutation)) {
            return false;
        }
        // Unreachable objects: either they lost their last name and are empty, or they form a cycle or a detached subtree.
        let unnamed: Vec<_> =
            next.objects.keys().copied().filter(|id| *id != ROOT && next.names_of(*id) == 0).collect();
        if unnamed.iter().any(|id| !next.is_empty(*id)) {
            return false;
        }
        next.objects.retain(|id, _| !unnamed.contains(id));
        if next.objects.keys().any(|id| !next.is_reached(*id)) {
            return false;
        }
        next.head += 1;
        *self = next;
        true
    }

    fn is_reached(&self, id: ObjectId) -> bool {
        let mut at = id;
        for _ in 0..=self.objects.len() {
            if at == ROOT {
                return true;
            }
            let Some(above) = self.links.iter().find(|(_, (child, _))| *child == at) else { return false };
            at = above.0.parent;
        }
        false
    }
}

fn ids() -> impl Strategy<Value = ObjectId> {
    (1u128..10).prop_map(ObjectId)
}

fn names() -> impl Strategy<Value = LinkName> {
    (ids(), prop::sample::select(vec!["a", "b", "c"])).prop_map(|(parent, name)| at(parent, name))
}

fn conditions() -> impl Strategy<Value = Precondition> {
    prop_oneof![
        ids().prop_map(Precondition::Exists),
        ids().prop_map(Precondition::Empty),
        names().prop_map(|at| Precondition::Link(at, None)),
        (names(), ids(), 1u64..20)
            .prop_map(|(at, child, seq)| Precondition::Link(at, Some((child, Seq(seq))))),
    ]
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let kinds = prop::sample::select(vec![Kind::Directory, Kind::Directory, Kind::Regular]);
    prop_oneof![
        4 => (ids(), kinds, names()).prop_map(|(id, kind, at)| {
            vec![Mutation::Make(object(id.0, kind)), Mutation::Link(at, id)]
        }),
        3 => (names(), names(), ids())
            .prop_map(|(from, to, id)| vec![Mutation::Unlink(from), Mutation::Link(to, id)]),
        2 => (names(), ids()).prop_map(|(at, id)| vec![Mutation::Link(at, id)]),
        2 => names().prop_map(|at| vec![Mutation::Unlink(at)]),
        1 => (ids(), 0u16..0o1000).prop_map(|(id, mode)| vec![Mutation::SetMode(id, mode)]),
    ]
}

fn items() -> impl Strategy<Value = Transaction> {
    let when = prop_oneof![4 => Just(Vec::new()), 1 => prop::collection::vec(conditions(), 1..3)];
    let changes = prop_oneof![
        4 => mutations(),
        1 => prop::collection::vec(mutations(), 2..4).prop_map(|all| all.concat())
    ];
    (when, changes).prop_map(|(when, change)| Transaction {
        preconditions: when,
        mutations: change,
        chunks: Vec::new(),
    })
}

/// Random changes are rarely valid: most are turned into valid ones, with existing objects.
fn sensible(model: &Model, steer: bool, mut item: Transaction) -> Transaction {
    let directories: Vec<_> = model.objects.keys().copied().filter(|id| model.is_directory(*id)).collect();
    let links: Vec<_> = model.links.iter().map(|(at, (child, _))| (at.clone(), *child)).collect();
    let pick = |id: ObjectId, of: usize| id.0 as usize % of;
    let mut moved = None;
    for mutation in item.mutations.iter_mut().filter(|_| steer) {
        match mutation {
            Mutation::Unlink(at) if !links.is_empty() => {
                let (from, child) = &links[pick(at.parent, links.len())];
                (*at, moved) = (from.clone(), Some(*child));
            }
            Mutation::Link(at, child) => {
                at.parent = directories[pick(at.parent, directories.len())];
                *child = moved.take().unwrap_or(*child);
            }
            _ => {}
        }
    }
    item
}

fn same(model: &Model, store: &dyn MetaStore) {
    assert_eq!(store.head().unwrap(), Seq(model.head));
    let page = store.scan(ObjectId(0), 1000).unwrap();
    let objects: BTreeMap<_, _> = page
        .objects
        .iter()
        .map(|stored| (stored.object.id, (stored.object.kind, stored.object.mode)))
        .collect();
    assert_eq!(objects, model.objects);
    let links: BTreeMap<_, _> =
        page.links.into_iter().map(|link| (link.at, (link.child, link.set))).collect();
    assert_eq!(links, model.links);
    for stored in page.objects {
        assert_eq!(stored.links as usize, model.names_of(stored.object.id));
    }
}

/// Checks that history reports every earlier state.
fn same_past(states: &[Model], store: &dyn MetaStore) {
    let history = store.history().unwrap();
    for model in states {
        let at = Seq(model.head);
        for n in 1..10 {
            let then = history.object_at(id(n), at).unwrap();
            let then = then.map(|stored| (stored.object.kind, stored.object.mode));
            assert_eq!(then, model.objects.get(&id(n)).copied(), "object {n} at {at}");
            let links = history.links_at(id(n), at, b"", 100).unwrap();
            let links: Vec<_> = links.into_iter().map(|link| (link.at, (link.child, link.set))).collect();
            let known = model.links.iter().filter(|(name, _)| name.parent == id(n));
            assert_eq!(links, known.map(|(at, to)| (at.clone(), *to)).collect::<Vec<_>>(), "names at {at}");
        }
    }
}

pub fn agrees(fresh: impl Fn() -> Option<Fresh>) {
    let mut runner = TestRunner::new(Config { cases: 48, failure_persistence: None, ..Config::default() });
    let batches =
        prop::collection::vec(prop::collection::vec((prop::bool::weighted(0.8), items()), 1..8), 1..12);
    let counted = std::cell::RefCell::new([0, 0]);
    runner
        .run(&batches, |batches| {
            let Some(fresh) = fresh() else { return Ok(()) };
            let mut model = Model::new();
            let some = [make(2, Kind::Directory, ROOT, "a"), make(3, Kind::Directory, id(2), "a")];
            assert!(some.iter().all(|item| model.apply(item)));
            assert!(commit(&*fresh.store, &some).iter().all(Result::is_ok));
            let mut states = vec![model.clone()];
            for batch in batches {
                let mut before = model.clone();
                let mut items = Vec::new();
                let expected: Vec<bool> = batch
                    .into_iter()
                    .map(|(steer, item)| {
                        items.push(sensible(&before, steer, item));
                        let accepted = before.apply(&items[items.len() - 1]);
                        if accepted {
                            states.push(before.clone());
                        }
                        accepted
                    })
                    .collect();
                model = before;
                let answers = commit(&*fresh.store, &items);
                for (n, (answer, expected)) in answers.iter().zip(&expected).enumerate() {
                    assert_eq!(answer.is_ok(), *expected, "{:?}: {answer:?}", items[n]);
                    counted.borrow_mut()[usize::from(*expected)] += 1;
                }
                same(&model, &*fresh.store);
            }
            same_past(&states, &*fresh.store);
            Ok(())
        })
        .unwrap();
    let [no, yes] = counted.into_inner();
    assert!(
        (no == 0 && yes == 0) || (no > 200 && yes > 100),
        "refused {no}, accepted {yes}: not a test of both"
    );
}
