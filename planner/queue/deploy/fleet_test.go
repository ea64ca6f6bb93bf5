package deploy

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"inferplan/formats"
)

// drawFleet draws servers of one to three devices that share none, on two pools.
func drawFleet(t *rapid.T, pools []formats.Pool, label string) (fleet Fleet) {
	for _, pool := range pools {
		for first := 0; first < pool.Count; {
			tp := rapid.IntRange(1, 3).Draw(t, label+" devices")
			if first+tp > pool.Count || first/pool.PerNode != (first+tp-1)/pool.PerNode {
				break
			}
			if rapid.Bool().Draw(t, label+" used") {
				model := rapid.SampledFrom([]string{"a", "b"}).Draw(t, label+" model")
				in := formats.QueueInstance{Device: pool.Device, FirstDevice: first, TensorParallel: tp, Model: model, Models: []string{model}, Sequences: []int{rapid.IntRange(1, 3).Draw(t, label+" sequences")}, TokenBudget: 1}
				in.TokenBudget = rapid.IntRange(1, 2).Draw(t, label+" budget")
				fleet = append(fleet, in)
			}
			first += tp
		}
	}
	return fleet
}

// A fleet that is placed near another one has the same servers, no device twice, and moves no more devices than before. From
// itself it moves none.
func TestFleetsArePlacedNear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pools := []formats.Pool{{Device: "x", Count: rapid.IntRange(1, 8).Draw(t, "x"), PerNode: rapid.IntRange(1, 8).Draw(t, "node")}, {Device: "y", Count: 4, PerNode: 4}}
		running, fleet := drawFleet(t, pools, "running"), drawFleet(t, pools, "new")
		placed := PlaceNear(running, fleet, pools)
		sorts := func(f Fleet) (keys []string) {
			for i := range f {
				in := f[i]
				in.TokenBudget = 0 // a server that goes on has its own
				keys = append(keys, ServerKey(&in))
			}
			slices.Sort(keys)
			return keys
		}
		if !slices.Equal(sorts(placed), sorts(fleet)) {
			t.Fatalf("placed %+v, of %+v", placed, fleet)
		}
		for i := range placed {
			pool := pools[slices.IndexFunc(pools, func(p formats.Pool) bool { return p.Device == placed[i].Device })]
			if placed[i].FirstDevice < 0 || end(&placed[i]) > pool.Count {
				t.Fatalf("%+v is not on its pool", placed[i])
			}
			for k := range i {
				if overlap(&placed[i], &placed[k]) {
					t.Fatalf("%+v and %+v share devices", placed[i], placed[k])
				}
			}
		}
		_, before := Moves(running, fleet)
		if moves, devices := Moves(running, placed); devices > before || len(moves) > devices {
			t.Fatalf("%d devices move, and %d of the fleet as it was", devices, before)
		}
		if _, devices := Moves(running, PlaceNear(running, running, pools)); devices != 0 {
			t.Fatalf("%d devices of %+v move from itself", devices, running)
		}
	})
}

// What plan serve alone changes moves nothing, and what needs a server's start moves its devices.
func TestMovesAreStarts(t *testing.T) {
	running := Fleet{{Device: "x", FirstDevice: 2, TensorParallel: 2, Model: "a", Models: []string{"a", "b"}, Sequences: []int{32, 16}, TokenBudget: 2048}}
	for name, c := range map[string]struct {
		change func(in *formats.QueueInstance)
		moved  int
	}{
		"nothing":       {func(*formats.QueueInstance) {}, 0},
		"fewer at once": {func(in *formats.QueueInstance) { in.Sequences = []int{8, 8} }, 0},
		"a model less":  {func(in *formats.QueueInstance) { in.Model, in.Models, in.Sequences = "b", []string{"b"}, []int{16} }, 0},
		"a class less":  {func(in *formats.QueueInstance) { in.Caps = []formats.ClassCap{{Class: "c", Sequences: 0}} }, 0},
		"more at once":  {func(in *formats.QueueInstance) { in.Sequences = []int{32, 17} }, 2},
		"another model": {func(in *formats.QueueInstance) { in.Models = []string{"a", "c"} }, 2},
		"other tokens":  {func(in *formats.QueueInstance) { in.TokenBudget = 4096 }, 2},
		"other devices": {func(in *formats.QueueInstance) { in.FirstDevice = 3 }, 2},
		"fewer devices": {func(in *formats.QueueInstance) { in.TensorParallel = 1 }, 1},
		"its own cache": {func(in *formats.QueueInstance) { in.NoPrefixCache = true }, 2},
		"its own order": {func(in *formats.QueueInstance) { in.Scheduling = formats.SchedulePriority }, 2},
		"another pool":  {func(in *formats.QueueInstance) { in.Device = "y" }, 2},
	} {
		in := running[0]
		c.change(&in)
		if moves, moved := Moves(running, Fleet{in}); moved != c.moved || (moved > 0) != (len(moves) == 1) {
			t.Errorf("%s: %d devices, %+v", name, moved, moves)
		}
	}
}
