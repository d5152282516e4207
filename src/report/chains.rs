//! Call trees: the common begins of call chains, with the sums of their ends.

use rustc_hash::FxHashMap;

use super::cells::Frame;

/// A function in a tree, by its name and module.
type Function = (u32, u32);

/// Call chains with common begins.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// The first node is the root, which has no function.
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    function: Option<Function>,
    /// Value of the chains that contain it.
    total: u64,
    /// Value of the chains that end here.
    own: u64,
    children: FxHashMap<Function, usize>,
}

/// Functions that are always called one after the other, and what follows.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Branch {
    /// Names of the functions.
    pub(super) names: Vec<u32>,
    /// Value of the chains that contain them.
    pub(super) total: u64,
    /// The branches after them, the largest first.
    pub(super) branches: Vec<Self>,
}

impl Tree {
    /// Adds a chain, in the order of the tree.
    pub(super) fn add(&mut self, chain: impl Iterator<Item = Frame>, value: u64) {
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
        let mut place = 0;
        for function in chain.map(|frame| (frame.name, frame.dso)) {
            let next = self.nodes.len();
            // In bounds: a place of a node, here and below.
            let found = *self.nodes[place].children.entry(function).or_insert(next);
            if found == next {
                self.nodes.push(Node { function: Some(function), ..Node::default() });
            }
            place = found;
            self.nodes[place].total = self.nodes[place].total.saturating_add(value);
        }
        self.nodes[place].own = self.nodes[place].own.saturating_add(value);
    }

    /// Returns the branches of at least this value, the largest first. `name` orders equal ones.
    pub(super) fn branches<'n>(&self, smallest: u64, name: &dyn Fn(u32) -> &'n str) -> Vec<Branch> {
        self.nodes.first().map_or_else(Vec::new, |root| self.after(root, smallest, name))
    }

    fn after<'n>(&self, node: &Node, smallest: u64, name: &dyn Fn(u32) -> &'n str) -> Vec<Branch> {
        let large = node.children.values().filter(|&&child| self.nodes[child].total >= smallest);
        let mut branches: Vec<Branch> = large.map(|&child| self.branch(child, smallest, name)).collect();
        let first = |branch: &Branch| branch.names.first().map_or("", |first| name(*first));
        branches.sort_by(|one, other| other.total.cmp(&one.total).then_with(|| first(one).cmp(first(other))));
        branches
    }

    fn branch<'n>(&self, place: usize, smallest: u64, name: &dyn Fn(u32) -> &'n str) -> Branch {
        let mut node = &self.nodes[place];
        let mut names = Vec::from_iter(node.function.map(|function| function.0));
        // A function that has one callee, and ends no chain, is one line of the same branch.
        while let (0, 1, Some(&only)) = (node.own, node.children.len(), node.children.values().next()) {
            node = &self.nodes[only];
            names.extend(node.function.map(|function| function.0));
        }
        Branch { names, total: node.total, branches: self.after(node, smallest, name) }
    }
}
