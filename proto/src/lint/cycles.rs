//! L023: tools that require each other in a circle, so that none of them can ever run first. Works without recursion:
//! chains are as long as a set is large.
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::finding::{Code, Found};
use crate::manifest::{Manifest, ManifestSet, index_path};

/// How many cycles of one knot are told. A knot may have more than anybody could read; the others show when these are
/// untied.
const CYCLES_MAX: usize = 20;

/// How many tools of a cycle are told.
const TOLD_MAX: usize = 20;

/// Reports for each tool that is in a cycle the shortest one, unless an earlier one passed it already: each cycle is
/// told once, and every tool that waits for itself is told unless its knot has too many.
pub(super) fn check(set: &ManifestSet, found: &mut Found) {
    let graph = Graph::of(set);
    for knot in graph.knots() {
        let (mut told, mut cycles) = (BTreeSet::new(), 0);
        for &start in &knot {
            if cycles == CYCLES_MAX {
                break;
            }
            if !told.contains(&start)
                && let Some(cycle) = graph.shortest_cycle(start, &knot)
            {
                told.extend(cycle.iter().copied());
                cycles += 1;
                graph.report(&cycle, found);
            }
        }
    }
}

/// Tools as numbers in the order of their names, and what each requires.
struct Graph<'a> {
    manifests: Vec<&'a Manifest>,
    /// Those that have no manifest (in a set from the journal) are left out.
    requires: Vec<Vec<usize>>,
}

impl<'a> Graph<'a> {
    fn of(set: &'a ManifestSet) -> Self {
        let manifests: Vec<&Manifest> = set.iter().map(|manifest| &**manifest).collect();
        let numbers: BTreeMap<_, _> = manifests.iter().enumerate().map(|(at, manifest)| (&manifest.tool, at)).collect();
        let numbered = |manifest: &&Manifest| -> Vec<usize> {
            manifest.requires.iter().filter_map(|tool| numbers.get(tool).copied()).collect()
        };
        let requires = manifests.iter().map(numbered).collect();
        Self { manifests, requires }
    }

    /// The sets of tools that all require each other, directly or through others (Tarjan's algorithm on a stack of our
    /// own), each in order.
    fn knots(&self) -> Vec<BTreeSet<usize>> {
        let mut search = Search::new(self.requires.len());
        for root in 0..self.requires.len() {
            if search.order[root].is_none() {
                search.from(root, &self.requires);
            }
        }
        let is_cycle = |knot: &BTreeSet<usize>| {
            knot.len() > 1 || knot.first().is_some_and(|only| self.requires[*only].contains(only))
        };
        let mut knots: Vec<_> = search.knots.into_iter().filter(is_cycle).collect();
        knots.sort_unstable();
        knots
    }

    /// The way from a tool back to itself with the fewest steps, turned so that the first by name comes first.
    fn shortest_cycle(&self, start: usize, knot: &BTreeSet<usize>) -> Option<Vec<usize>> {
        let mut came_from: BTreeMap<usize, usize> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(at) = queue.pop_front() {
            if self.requires[at].contains(&start) {
                let mut cycle: Vec<usize> = std::iter::successors(Some(at), |at| came_from.get(at).copied()).collect();
                cycle.reverse();
                let first = (0..cycle.len()).min_by_key(|at| cycle[*at]).unwrap_or_default();
                cycle.rotate_left(first);
                return Some(cycle);
            }
            for &next in self.requires[at].iter().filter(|next| **next != start && knot.contains(next)) {
                came_from.entry(next).or_insert_with(|| {
                    queue.push_back(next);
                    at
                });
            }
        }
        None
    }

    fn report(&self, cycle: &[usize], found: &mut Found) {
        let name = |at: &usize| self.manifests[*at].tool.as_str();
        let mut names: Vec<&str> = cycle.iter().take(TOLD_MAX).map(name).collect();
        let left_out = format!("({} more)", cycle.len().saturating_sub(TOLD_MAX));
        if cycle.len() > TOLD_MAX {
            names.push(&left_out);
        }
        let Some(&first) = cycle.first() else { return };
        names.push(name(&first));
        let manifest = self.manifests[first];
        let next = &self.manifests[cycle.get(1).copied().unwrap_or(first)].tool;
        let entry = manifest.requires.iter().position(|required| required == next);
        let field = index_path("requires", entry.unwrap_or_default());
        let message = format!("requires forms a cycle, {}: none of them can ever run", names.join(" -> "));
        found.add(manifest, Code::L023, &field, message, "remove the entry of `requires` that is not needed first");
    }
}

/// The state of Tarjan's algorithm.
struct Search {
    order: Vec<Option<usize>>,
    low: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<usize>,
    visited: usize,
    knots: Vec<BTreeSet<usize>>,
}

impl Search {
    fn new(count: usize) -> Self {
        Self {
            order: vec![None; count],
            low: vec![0; count],
            on_stack: vec![false; count],
            stack: Vec::new(),
            visited: 0,
            knots: Vec::new(),
        }
    }

    fn from(&mut self, root: usize, requires: &[Vec<usize>]) {
        // A tool, and how many of its requirements were looked at.
        let mut path = vec![(root, 0)];
        self.enter(root);
        while let Some((at, next)) = path.pop() {
            if let Some(&child) = requires[at].get(next) {
                path.push((at, next + 1));
                match self.order[child] {
                    None => {
                        self.enter(child);
                        path.push((child, 0));
                    }
                    Some(order) if self.on_stack[child] => self.low[at] = self.low[at].min(order),
                    Some(_) => {}
                }
            } else {
                self.leave(at);
                if let Some((parent, _)) = path.last() {
                    self.low[*parent] = self.low[*parent].min(self.low[at]);
                }
            }
        }
    }

    fn enter(&mut self, at: usize) {
        self.order[at] = Some(self.visited);
        self.low[at] = self.visited;
        self.visited += 1;
        self.stack.push(at);
        self.on_stack[at] = true;
    }

    /// All that it reaches was seen; if nothing of it came before, what lies on the stack above it is its knot.
    fn leave(&mut self, at: usize) {
        if self.order[at] != Some(self.low[at]) {
            return;
        }
        let mut knot = BTreeSet::new();
        while let Some(top) = self.stack.pop() {
            self.on_stack[top] = false;
            knot.insert(top);
            if top == at {
                break;
            }
        }
        self.knots.push(knot);
    }
}
