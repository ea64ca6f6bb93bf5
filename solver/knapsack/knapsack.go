package knapsack

import "math"

// Choice is what can be picked of a list.
type Choice struct{ Value, Weight float64 }

// slack is the part of a unit that rounding may be off by: a weight of 3 units stays one of 3.
const slack = 1e-9

// Best are the picks, an index by list, that are worth the most with no more weight than
// there is room for. Weights are counted in parts of 1, of which there are so many. Of equal
// picks the first stand. Where nothing fits, every pick is the first choice of its list,
// which should be the lightest.
func Best(lists [][]Choice, room, parts float64) []int {
	most := int(room*parts + slack)
	weight := func(c *Choice) int { return int(math.Ceil(c.Weight*parts - slack)) }
	value := make([]float64, most+1) // by weight, of the lists so far
	taken := make([][]int, len(lists))
	for r, list := range lists {
		next := make([]float64, most+1)
		taken[r] = make([]int, most+1)
		for room := range next {
			next[room] = math.Inf(-1)
			for k := range list {
				if left := room - weight(&list[k]); left >= 0 && value[left]+list[k].Value > next[room] {
					next[room], taken[r][room] = value[left]+list[k].Value, k
				}
			}
		}
		value = next
	}
	picks := make([]int, len(lists))
	if math.IsInf(value[most], -1) {
		return picks
	}
	left := most
	for r := len(lists) - 1; r >= 0; r-- {
		picks[r] = taken[r][left]
		left -= weight(&lists[r][picks[r]])
	}
	return picks
}
