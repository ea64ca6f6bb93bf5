package stages

import (
	"slices"
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
)

// measurementsOf is a model of blocks whose whole takes so many microseconds, on average
// and after a pause, by batch: the first block a quarter of it.
func measurementsOf(device string, inputs int, times map[int][3]document.Micros) *formats.ProfileModel {
	m := &formats.ProfileModel{Model: "m", Inputs: make([]formats.TensorInfo, inputs), Blocks: make([]formats.Block, 2)}
	for _, b := range []int{1, 2, 4, 8} {
		if x, ok := times[b]; ok {
			whole := formats.Latency{WallUS: 1000 * x[0], MeanUS: 1000 * x[1], IdleUS: 1000 * x[2]}
			m.Measurements = append(m.Measurements, formats.Measurement{Device: device, Share: 1, Batch: b, WholeModel: &whole,
				Blocks: []formats.Latency{{WallUS: 250 * x[0]}, {WallUS: 750 * x[0]}}})
		}
	}
	return m
}

func micros(list ...int) (out []document.Micros) {
	for _, x := range list {
		out = append(out, document.Micros(1000*x))
	}
	return out
}

// A stage of a plan takes what was measured, undisturbed and on average. Between measured
// sizes it takes what lies on the line where batches run as they are: on CPUs, and on
// GPUs with several tensors in or out; else what the next larger size takes, as it does
// where times fall and below the smallest.
func TestWriteTimes(t *testing.T) {
	rising := map[int][3]document.Micros{1: {100, 110, 125}, 2: {200, 200, 0}, 4: {400, 480, 0}}
	for _, c := range []struct {
		name                string
		device              string
		inputs              int
		times               map[int][3]document.Micros
		infer, mean, blocks []document.Micros
		unsure              int // batch whose time is between those of others; 0: none
		idle                document.Micros
	}{
		{"a CPU", "cpu-1", 1, rising, micros(100, 200, 300), micros(110, 200, 340), micros(75, 225), 3, 15_000},
		{"a GPU, one tensor in and out", "A", 1, rising, micros(100, 200, 400), micros(110, 200, 480), micros(100, 300), 0, 15_000},
		{"a GPU, two tensors in", "A", 2, rising, micros(100, 200, 300), micros(110, 200, 340), micros(75, 225), 3, 15_000},
		{"times fall", "cpu-1", 1, map[int][3]document.Micros{1: {100}, 2: {500}, 4: {400}}, micros(100, 500, 400), nil, micros(100, 300), 0, 0},
		{"below the smallest", "cpu-1", 1, map[int][3]document.Micros{4: {400, 480, 0}}, micros(400, 400, 400), micros(480, 480, 480), micros(100, 300), 0, 0},
	} {
		costs, err := MeasuredCosts(measurementsOf(c.device, c.inputs, c.times), []formats.Pool{{Device: c.device, MaxShares: 1}}, 3, "", "")
		if err != nil {
			t.Fatal(err)
		}
		got := formats.Stage{Blocks: [2]int{0, 2}, Device: c.device, Share: 1}
		costs[0][0].WriteStage(&got, measurementsOf(c.device, c.inputs, c.times), 3)
		if !slices.Equal(got.InferUS, c.infer) || !slices.Equal(got.MeanUS, c.mean) || !slices.Equal(got.BlockUS, c.blocks) || got.IdleUS != c.idle {
			t.Errorf("%s: %+v, expected %v, on average %v, by block %v, %v more", c.name, got, c.infer, c.mean, c.blocks, c.idle)
		}
		for b, r := range got.InferRangeUS {
			if (r[0] < r[1]) != (b+1 == c.unsure) || r[1] < c.infer[b] || r[0] > c.infer[b] {
				t.Errorf("%s: batch %d takes %v to %v", c.name, b+1, r[0], r[1])
			}
		}
		if (got.InferRangeUS != nil) != (c.unsure > 0) {
			t.Errorf("%s: intervals %v", c.name, got.InferRangeUS)
		}
		m := Model{ShareCosts: costs}
		if sizes := m.BatchSizes(); c.name != "below the smallest" && !slices.Equal(sizes, []int{1, 2, 3}) {
			t.Errorf("%s: batches %v are looked at, expected up to the largest allowed", c.name, sizes)
		}
	}
}

// A batch that was not measured is planned only where the next larger one, which it may
// cost, keeps the SLO. Its rate is by the mean on the line.
func TestUnmeasuredBatchKeepsSLO(t *testing.T) {
	rising := map[int][3]document.Micros{1: {100, 110, 125}, 2: {200, 200, 0}, 4: {400, 480, 0}}
	pools := []formats.Pool{{Device: "cpu-1", MaxShares: 1}}
	costs, err := MeasuredCosts(measurementsOf("cpu-1", 1, rising), pools, 3, "", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		slo     int // microseconds
		largest int
	}{{400, 3}, {399, 2}, {199, 1}} {
		p := Problem{MaxPartitions: 1, Pools: []Pool{{Kind: "cpu-1", Count: 1, MaxShares: 1, TimeShared: true}},
			Models: []Model{{Name: "m", SLO: micros(c.slo)[0].D(), CutBytes: []int64{1}, Weights: []int64{1, 1}, ShareCosts: costs}}}
		list, _, err := p.ListTemplates(0)
		if err != nil {
			t.Fatal(err)
		}
		last := list[len(list)-1]
		if last.Batch != c.largest {
			t.Errorf("SLO %d us: batch %d, expected %d", c.slo, last.Batch, c.largest)
		}
		if s := last.Stages[0]; c.largest == 3 && (s.MaxTime != 400*us || s.MeanTime != 340*us || s.Rate < 8823 || s.Rate > 8824) {
			t.Errorf("batch 3 takes %v at most, %v on average, %v/s", s.MaxTime, s.MeanTime, s.Rate)
		}
	}
}
