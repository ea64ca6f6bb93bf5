package refine

import (
	"fmt"
	"slices"
	"strings"
)

// Tuple joins nodes, in their order.
type Tuple struct {
	Label int
	Nodes []int
}

// Classes parts nodes of some colours, and tuples of them, as long as they are not alike. A
// class is a number from 0 up, in the order in which its first node, or tuple, comes.
func Classes(colours []int, tuples []Tuple) (ofNodes, ofTuples []int) {
	in := make([][]place, len(colours))
	for i, t := range tuples {
		for at, n := range t.Nodes {
			in[n] = append(in[n], place{i, at})
		}
	}
	ofTuples = make([]int, len(tuples))
	for classes := -1; ; {
		tupleNames, nodeNames := naming{}, naming{}
		for i, t := range tuples {
			name := fmt.Sprint(t.Label)
			for _, n := range t.Nodes {
				name += fmt.Sprint(" ", colours[n])
			}
			ofTuples[i] = tupleNames.number(name)
		}
		ofNodes = make([]int, len(colours))
		for n := range colours {
			var of []string
			for _, p := range in[n] {
				of = append(of, fmt.Sprint(ofTuples[p.tuple], "/", p.at))
			}
			slices.Sort(of)
			ofNodes[n] = nodeNames.number(fmt.Sprint(colours[n], ":", strings.Join(of, " ")))
		}
		if colours = ofNodes; len(nodeNames) == classes {
			return ofNodes, ofTuples
		}
		classes = len(nodeNames)
	}
}

// place is where a node stands in a tuple.
type place struct{ tuple, at int }

// naming numbers names as they come.
type naming map[string]int

func (m naming) number(name string) int {
	if _, ok := m[name]; !ok {
		m[name] = len(m)
	}
	return m[name]
}
