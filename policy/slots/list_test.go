package slots

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Lists that share their links have what slices have, under any mix of calls.
func TestListsAgainstSlices(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var links Links
	lists, want := [3]List{EmptyList, EmptyList, EmptyList}, [3][]int32{}
	place := map[int32]int{}
	for range 5000 {
		number := rng.Int32N(40)
		if i, isIn := place[number]; isIn {
			links.Remove(&lists[i], number)
			want[i] = slices.DeleteFunc(want[i], func(other int32) bool { return other == number })
			delete(place, number)
		} else {
			i := rng.IntN(len(lists))
			position, previous := rng.IntN(len(want[i])+1), int32(-1)
			if position > 0 {
				previous = want[i][position-1]
			}
			if links.InsertAfter(&lists[i], previous, number); position == len(want[i]) && rng.IntN(2) == 0 {
				links.Remove(&lists[i], number)
				links.Append(&lists[i], number)
			}
			want[i] = slices.Insert(want[i], position, number)
			place[number] = i
		}
		for i, list := range lists {
			var forward, backward []int32
			for number := list.First; number >= 0; number = links[number].Next {
				forward = append(forward, number)
			}
			for number := list.Last; number >= 0; number = links[number].Previous {
				backward = append(backward, number)
			}
			slices.Reverse(backward)
			if !slices.Equal(forward, want[i]) || !slices.Equal(backward, want[i]) || int(list.Len) != len(want[i]) {
				t.Fatalf("list %d of %d has %v and backwards %v, expected %v", i, list.Len, forward, backward, want[i])
			}
		}
	}
}
