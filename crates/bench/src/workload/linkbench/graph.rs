//! The graph: how many links each node has, and how often each node is asked for.
//!
//! Out-degrees follow Facebook's distribution. Up to 38 links it is the published table (`Distribution.dat`, linear
//! between the points kept here); the tail, 0.355 % of the nodes with nearly all of the mean of 4.10, is a Pareto
//! distribution cut off at the table's last value, its exponent fitted to that mean. No node has more links than there
//! are nodes.

use crate::permutation::Permutation;
use crate::random::Random;
use crate::zipf::Zipf;

/// The first link type; others follow.
pub const FIRST_LINK_TYPE: i64 = 123_456_789;
/// Link types.
pub const LINK_TYPES: u64 = 2;

/// Number of links, and the percentage of nodes with no more.
const HEAD: [(f64, f64); 16] = [
    (0.0, 45.33),
    (1.0, 77.46),
    (2.0, 86.96),
    (3.0, 91.99),
    (4.0, 94.45),
    (5.0, 95.83),
    (6.0, 96.72),
    (7.0, 97.32),
    (8.0, 97.76),
    (9.0, 98.08),
    (10.0, 98.33),
    (15.0, 99.03),
    (20.0, 99.33),
    (30.0, 99.56),
    (38.0, 99.645),
    // The tail begins here; the entry closes the last interval.
    (38.0, 99.645),
];
/// The largest number of links in the published table.
const TAIL_MAX: f64 = 961_963.0;
/// Fitted: with it the mean of the whole distribution is 4.10.
const TAIL_EXPONENT: f64 = 0.842;

/// The permutations of LinkBench have these seeds; the ones here are others, chosen by the same numbers.
const DEGREE_SEED: u64 = 20_343_988_438_726_021;
const UNCORRELATED_SEED: u64 = 53_238_253_823_453;
const NODE_SEED: u64 = 4_766_565_305_853_767_165;

/// Which operation asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Lists, counts and single links.
    LinkRead,
    /// Adding, changing and deleting links.
    LinkWrite,
    /// A node.
    NodeRead,
    /// Changing a node.
    NodeUpdate,
    /// Deleting a node.
    NodeDelete,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Graph {
    ids: u64,
    seed: u64,
    degrees: Permutation,
    uncorrelated: Permutation,
    nodes: Permutation,
    link_read: Zipf,
    link_write: Zipf,
    node_read: Zipf,
    node_update: Zipf,
}

impl Graph {
    /// A graph of nodes 1 to `ids`.
    pub fn new(ids: u64, seed: u64) -> Self {
        Self {
            ids,
            seed,
            degrees: Permutation::new(ids, DEGREE_SEED),
            uncorrelated: Permutation::new(ids, UNCORRELATED_SEED),
            nodes: Permutation::new(ids, NODE_SEED),
            link_read: Zipf::new(ids, 0.8),
            link_write: Zipf::new(ids, 0.741),
            node_read: Zipf::new(ids, 0.625),
            node_update: Zipf::new(ids, 0.606),
        }
    }

    /// Number of nodes.
    pub fn ids(&self) -> u64 {
        self.ids
    }

    /// Decides everything random.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Links of a node, of all types. The node of rank 0 has most.
    pub fn links(&self, id: u64) -> u64 {
        self.links_of_rank(self.degrees.invert(id - 1))
    }

    /// Links of the node of a rank; they never rise with it.
    fn links_of_rank(&self, rank: u64) -> u64 {
        let share = 1.0 - (rank as f64 + 0.5) / self.ids as f64;
        degree(share).min(self.ids)
    }

    /// Links of a node of one type: as equal as can be, the first type having the odd one.
    pub fn links_of_type(&self, id: u64, index: u64) -> u64 {
        let links = self.links(id);
        links / LINK_TYPES + u64::from(index < links % LINK_TYPES)
    }

    /// Documents of a load: nodes, links, counts. Nodes of equal degrees are counted at once: there may be billions.
    pub fn rows(&self) -> u64 {
        let mut rows = 0;
        let mut rank = 0;
        while rank < self.ids {
            let links = self.links_of_rank(rank);
            let behind = self.behind(rank, links);
            rows += (behind - rank) * (1 + links + links.min(LINK_TYPES));
            rank = behind;
        }
        rows
    }

    /// The first rank behind `rank` with fewer links, looked for in steps that double and then halve.
    fn behind(&self, rank: u64, links: u64) -> u64 {
        let (mut last, mut step) = (rank, 1);
        while last + step < self.ids && self.links_of_rank(last + step) == links {
            last += step;
            step *= 2;
        }
        while step > 0 {
            if last + step < self.ids && self.links_of_rank(last + step) == links {
                last += step;
            }
            step /= 2;
        }
        last + 1
    }

    /// A node for an operation.
    pub fn choose(&self, access: Access, random: &mut Random) -> u64 {
        let (zipf, correlated_share, permutation) = match access {
            Access::LinkRead => (&self.link_read, 0.005, &self.uncorrelated),
            Access::LinkWrite => (&self.link_write, 0.05, &self.uncorrelated),
            Access::NodeRead => (&self.node_read, 0.0, &self.nodes),
            Access::NodeUpdate => (&self.node_update, 0.0, &self.nodes),
            Access::NodeDelete => return 1 + random.below(self.ids),
        };
        let correlated = correlated_share > 0.0 && random.chance(correlated_share);
        let permutation = if correlated { &self.degrees } else { permutation };
        1 + permutation.map(zipf.draw(random))
    }

    /// The other end of a link. `existing`: the share of links that shall be there.
    pub fn choose_other(&self, id: u64, index: u64, existing: f64, random: &mut Random) -> u64 {
        let links = self.links_of_type(id, index);
        let range = (links as f64 / existing).ceil().max(1.0) as u64;
        id + random.below(range)
    }
}

/// The number of links that so large a share of nodes does not have more than.
fn degree(share: f64) -> u64 {
    let percent = share * 100.0;
    if percent <= HEAD[0].1 {
        return 0;
    }
    for pair in HEAD.windows(2) {
        let [(from, below), (to, upto)] = pair else { continue };
        if percent <= *upto && upto > below {
            let within = (percent - below) / (upto - below);
            return (from + within * (to - from)).ceil() as u64;
        }
    }
    let (start, percent_at_start) = HEAD[HEAD.len() - 1];
    let within = ((percent - percent_at_start) / (100.0 - percent_at_start)).clamp(0.0, 1.0);
    // The inverse of a Pareto distribution between two bounds.
    let cut = (start / TAIL_MAX).powf(TAIL_EXPONENT);
    (start / (1.0 - within * (1.0 - cut)).powf(1.0 / TAIL_EXPONENT)).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_of_all_nodes_however_many() {
        for ids in [1, 2, 39, 1000, 100_003] {
            let graph = Graph::new(ids, 1);
            let of_node = |id: u64| {
                let types = (0..LINK_TYPES).filter(|index| graph.links_of_type(id, *index) > 0);
                1 + graph.links(id) + types.count() as u64
            };
            assert_eq!(graph.rows(), (1..=ids).map(of_node).sum::<u64>(), "{ids} nodes");
        }
        // One by one it would take an hour: the mean of links, a node, and some 0.9 counts.
        let mean = Graph::new(100_000_000_000, 1).rows() as f64 / 1e11;
        assert!((5.8..6.1).contains(&mean), "{mean}");
    }

    #[test]
    fn degrees_are_the_published_ones() {
        let ids = 1_000_000;
        let graph = Graph::new(ids, 1);
        let mut counts = vec![0u64; 39];
        let mut with_links = 0;
        for id in 1..=ids {
            let links = graph.links(id);
            with_links += u64::from(links > 0);
            if let Some(count) = counts.get_mut(links as usize) {
                *count += 1;
            }
        }
        let mut sum = 0;
        for (links, count) in counts.iter().enumerate() {
            sum += count;
            if let Some((_, percent)) = HEAD.iter().find(|(point, _)| *point == links as f64) {
                let found = sum as f64 / ids as f64 * 100.0;
                assert!(
                    (found - percent).abs() < 0.01,
                    "up to {links} links: {found} % instead of {percent} %"
                );
            }
        }
        assert!((with_links as f64 / ids as f64 - 0.5467).abs() < 0.001);
        assert_eq!(
            graph.links(1 + graph.degrees.map(0)).max(1),
            (1..=ids).map(|id| graph.links(id)).max().expect("some")
        );
    }

    #[test]
    fn the_mean_degree_is_that_of_the_published_table() {
        // By ranks, as a graph as large as the table's last value would have them.
        let ids = 20_000_000u64;
        let sum: f64 = (0..ids)
            .map(|rank| degree(1.0 - (rank as f64 + 0.5) / ids as f64) as f64)
            .sum();
        let mean = sum / ids as f64;
        assert!((mean - 4.10).abs() < 0.08, "{mean}");
        assert_eq!(degree(1.0), TAIL_MAX as u64);
    }

    #[test]
    fn types_share_the_links_and_rows_are_counted() {
        let graph = Graph::new(2000, 1);
        for id in 1..=2000 {
            assert_eq!(
                (0..LINK_TYPES).map(|index| graph.links_of_type(id, index)).sum::<u64>(),
                graph.links(id)
            );
        }
        assert!(graph.rows() > 2000 * 2);
    }

    /// The share of draws that fall on the hottest ids of a permutation.
    fn share_of_hottest(graph: &Graph, access: Access, permutation: &Permutation, hottest: u64) -> f64 {
        let hot: std::collections::HashSet<u64> = (0..hottest).map(|rank| 1 + permutation.map(rank)).collect();
        let mut random = Random::new(17);
        let draws = 200_000;
        let hits = (0..draws)
            .filter(|_| {
                let id = graph.choose(access, &mut random);
                assert!((1..=graph.ids()).contains(&id));
                hot.contains(&id)
            })
            .count();
        hits as f64 / f64::from(draws)
    }

    #[test]
    fn nodes_are_asked_for_as_published() {
        let graph = Graph::new(50_000, 1);
        let hottest = 500;
        let by_zipf = |zipf: &Zipf| (0..hottest).map(|rank| zipf.probability(rank)).sum::<f64>();
        let uniform = hottest as f64 / 50_000.0;
        for (access, zipf, permutation, correlated) in [
            (Access::LinkRead, &graph.link_read, &graph.uncorrelated, 0.005),
            (Access::LinkWrite, &graph.link_write, &graph.uncorrelated, 0.05),
            (Access::NodeRead, &graph.node_read, &graph.nodes, 0.0),
            (Access::NodeUpdate, &graph.node_update, &graph.nodes, 0.0),
        ] {
            let expected = by_zipf(zipf) * (1.0 - correlated) + correlated * uniform;
            let found = share_of_hottest(&graph, access, permutation, hottest);
            assert!(
                (found / expected - 1.0).abs() < 0.05,
                "{access:?}: {found} instead of {expected}"
            );
        }
        let written = share_of_hottest(&graph, Access::LinkWrite, &graph.degrees, hottest);
        let expected = by_zipf(&graph.link_write) * 0.05 + 0.95 * uniform;
        assert!(
            (written / expected - 1.0).abs() < 0.15,
            "correlated with degrees: {written} instead of {expected}"
        );
        let deleted = share_of_hottest(&graph, Access::NodeDelete, &graph.nodes, hottest);
        assert!((deleted / uniform - 1.0).abs() < 0.15, "{deleted} instead of {uniform}");
    }

    #[test]
    fn the_other_end_exists_as_often_as_asked() {
        let graph = Graph::new(50_000, 1);
        let mut random = Random::new(3);
        for existing in [0.05, 0.5, 0.9] {
            let (mut hits, mut expected) = (0.0, 0.0);
            for id in 1..=50_000 {
                let links = graph.links_of_type(id, 0);
                let range = (links as f64 / existing).ceil().max(1.0);
                expected += links as f64 / range;
                hits += f64::from(u8::from(graph.choose_other(id, 0, existing, &mut random) < id + links));
            }
            assert!((hits / expected - 1.0f64).abs() < 0.05, "{existing}: {hits} {expected}");
        }
    }
}
