package refine

import (
	"fmt"
	"slices"
	"strings"
)

// Tuple is a sequence of nodes with a label. Only tuples of the same label can be in the same class.
type Tuple struct {
	Label int
	Nodes []int
}

// RefineColours refines a colouring of nodes and of tuples of them (Weisfeiler and Leman) until no class splits
// any more, and returns the classes. Two nodes stay in a class if they have the same colour and occur in tuples of
// the same classes, at the same positions, equally often. Classes are numbered from 0 in the order of their first
// node, or tuple.
func Classes(colours []int, tuples []Tuple) (ofNodes, ofTuples []int) {
	// The tuples and positions in which each node occurs.
	in := make([][]place, len(colours))
	for i, t := range tuples {
		for at, n := range t.Nodes {
			in[n] = append(in[n], place{i, at})
		}
	}
	ofTuples = make([]int, len(tuples))
	for classes := -1; ; {
		// The class of a tuple: its label and the classes of its nodes.
		tupleNames, nodeNames := naming{}, naming{}
		for i, t := range tuples {
			name := fmt.Sprint(t.Label)
			for _, n := range t.Nodes {
				name += fmt.Sprint(" ", colours[n])
			}
			ofTuples[i] = tupleNames.number(name)
		}

		// The class of a node: its old class and the classes of its tuples.
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

// tuplePosition is a position in a tuple.
type place struct{ tuple, at int }

// nameNumbers numbers names in the order in which they first occur.
type naming map[string]int

// numberOf returns the number of a name.
func (m naming) number(name string) int {
	if _, ok := m[name]; !ok {
		m[name] = len(m)
	}
	return m[name]
}
