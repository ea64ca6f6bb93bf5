package knapsack

import "math"

// Choice is an item of a list, of which one is chosen.
type Choice struct{ Value, Weight float64 }

// roundingSlack is the part of a unit that rounding may be off by: a weight of 3 units stays one of 3.
const slack = 1e-9

// BestChoices returns, by list, the index of the chosen item, such that the values sum to the most and the weights
// to no more than the capacity. Weights are rounded up to units, of which a weight of 1 has unitsPerWeight. Of
// equal choices the earlier items are taken. If nothing fits, it returns the first item of each list, which should
// be the lightest.
//
// With V_i(u) the most value of the first i lists in at most u units,
//
//	V_i(u) = max_k V_{i-1}(u - weight(i, k)) + value(i, k)
func Best(lists [][]Choice, room, parts float64) []int {
	most := int(room*parts + slack)
	weight := func(c *Choice) int { return int(math.Ceil(c.Weight*parts - slack)) }
	value := make([]float64, most+1)   // V_i, by units
	taken := make([][]int, len(lists)) // by list and units: the best item
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

	// Follow the chosen items back from the capacity.
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
