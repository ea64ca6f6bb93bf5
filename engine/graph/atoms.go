package graph

// AtomNodes names the operators of an atom, in order. One without a name is
// called after what it makes, node_of_ and its first output, as ONNX parsers of
// runtimes do.
func (c *Chain) AtomNodes(i int) []string {
	n := c.Model.net
	var out []string
	for _, k := range n.compute[c.Cuts[i].pos:c.Cuts[i+1].pos] {
		name := n.nodes[k].GetName()
		if name == "" && len(n.nodes[k].Output) > 0 {
			name = "node_of_" + n.nodes[k].Output[0]
		}
		out = append(out, name)
	}
	return out
}

// Group divides a list of parts into n runs (fewer where there are fewer parts)
// so that the largest cost is smallest and, among those, the fewest bytes cross:
// the rule of Partition, for parts that are no atoms. cross[i] is what crosses
// before part i. The result has the first part of each run, and the end.
func Group(costs []float64, cross []int64, n int) []int {
	return partition(costs, cross, min(n, len(costs)))
}
