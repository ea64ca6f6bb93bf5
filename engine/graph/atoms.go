package graph

// AtomNodes returns the names of the operators of atom i (the part of the model between Cuts[i] and Cuts[i+1]), in
// order. An operator without a name gets the name node_of_ and its first output, as in the ONNX parsers of runtimes,
// so that the names agree with those in a runtime's own profile.
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

// GroupParts divides a list of parts into n runs (fewer if there are fewer parts) so that the largest cost is
// smallest and, among these divisions, the fewest bytes cross. It is the rule of Partition, for parts other than
// atoms. cross[i] is the bytes that cross before part i. The result holds the first part of each run, and the end.
func GroupParts(costs []float64, cross []int64, n int) []int {
	return partitionAtoms(costs, cross, min(n, len(costs)))
}
