package formats

import (
	"strings"
	"testing"
	"time"

	"inferplan/cputime"
	"inferplan/formats/document"
)

// TestPlanIsCheckedFromFirstPrinciples breaks a valid plan in one way at a time.
func TestPlanIsCheckedFromFirstPrinciples(t *testing.T) {
	bad := 0.5
	for _, c := range []struct {
		name   string
		damage func(p *Plan)
		want   string // empty: still valid
	}{
		{"nothing", func(p *Plan) {}, ""},
		{"kind", func(p *Plan) { p.Kind = "pol" }, "kind: found the text \"pol\""},
		{"stopped", func(p *Plan) { p.StoppedBy = "luck" }, "stopped_by: found the text \"luck\""},
		{"objective", func(p *Plan) { p.Objective.Name = "speed" }, "objective.name"},
		{"objective value", func(p *Plan) { p.Objective.Value = 1200 }, "objective.value: found the number 1200, expected the least rps / weight over the models, 1000"},
		{"gap without bound", func(p *Plan) { p.Objective.Bound = nil }, "objective.gap: found the number 0.01, expected null"},
		{"no bound", func(p *Plan) { p.Objective.Bound, p.Objective.Gap = nil, nil }, ""},
		{"margin", func(p *Plan) { p.Options.Put("margin", 1.0) }, "options.margin"},
		{"rounding", func(p *Plan) { p.Options.Put("gpu-rounding", "slots") }, "options.gpu_rounding: found \"slots\", expected slot or fractional\n  hint: did you mean slot?"},
		{"input digest", func(p *Plan) { p.Inputs[0].SHA256 = strings.ToUpper(p.Inputs[0].SHA256) }, "inputs[0].sha256"},
		{"input path", func(p *Plan) { p.Inputs[0].Path = "/etc/profile.json" }, "inputs[0].path: found the text \"/etc/profile.json\", expected a path relative"},
		{"no pools", func(p *Plan) { p.Pools = nil }, "pools: found an empty list"},
		{"no models", func(p *Plan) { p.Deployment = nil }, "deployment: found an empty list"},
		{"model twice", func(p *Plan) { p.Deployment[1].Model = "encnet" }, "deployment[1].model: found \"encnet\" a second time"},
		{"classes of one model", func(p *Plan) {
			p.Deployment[1].Model, p.Deployment[1].Class, p.Certificate = "encnet", "batch", nil
			p.Deployment[0].Class, p.Deployment[0].SHA256 = "interactive", p.Deployment[1].SHA256
			p.Deployment[1].NumBlocks = p.Deployment[0].NumBlocks
			p.Deployment[1].Pipelines[0].Stages[0].Blocks[1] = p.Deployment[0].NumBlocks
			p.Deployment[1].Pipelines[0].Stages[0].BlockUS = nil
			for i := range p.Deployment {
				PoolOf(p).Models[i].Model, PoolOf(p).Models[i].Class = p.Deployment[i].Model, p.Deployment[i].Class
			}
		}, ""},
		{"another order", func(p *Plan) { PoolOf(p).Models[0].Model = "tiny" }, "pool.models[0].model: found \"tiny\", expected the model at the same place of the deployment, \"encnet\""},
		{"no section", func(p *Plan) { p.Section = nil }, "pool: found nothing, expected the section of a plan of kind pool"},
		{"section of another kind", func(p *Plan) { p.Section = &GearPlan{} }, "gear: found a section gear, expected none in a plan of kind pool"},
		{"a class twice", func(p *Plan) {
			p.Deployment[1].Model, p.Deployment[1].Class, p.Deployment[0].Class = "encnet", "gold", "gold"
		}, "deployment[1].class: found \"gold\" of encnet a second time, expected each class of a model once"},
		{"class with a blank", func(p *Plan) { p.Deployment[1].Class = "gold medal" }, "deployment[1].class: found the text \"gold medal\""},
		{"classes of two files", func(p *Plan) {
			p.Deployment[1].Model, p.Deployment[1].Class, p.Deployment[1].SHA256 = "encnet", "gold", strings.Repeat("f", 64)
		}, "deployment[1].sha256: found the text"},
		{"classes of other blocks", func(p *Plan) {
			p.Deployment[1].Model, p.Deployment[1].Class, p.Deployment[1].NumBlocks = "encnet", "gold", 9
		}, "deployment[1].num_blocks: found the number 9, expected that of the model's other classes, 4"},
		{"certified class", func(p *Plan) { p.Certificate.Models[0].Class = "gold" }, "certified.models[0].model: found the model \"encnet/gold\""},
		{"slo", func(p *Plan) { PoolOf(p).Models[0].SLOUS = 0 }, "pool.models[0].slo_us: found the number 0"},
		{"margin over slo", func(p *Plan) { PoolOf(p).Models[1].MarginUS = document.Micros(5 * time.Millisecond) }, "pool.models[1].margin_us"},
		{"percentile", func(p *Plan) { PoolOf(p).Models[0].Percentile = "99" }, "pool.models[0].percentile"},
		{"weight", func(p *Plan) { PoolOf(p).Models[0].Weight = 0 }, "pool.models[0].weight: found the number 0"},
		{"model rps", func(p *Plan) { PoolOf(p).Models[0].RPS = 900 }, "pool.models[0].rps: found the number 900, expected the sum over its pipelines, 800"},
		{"batch", func(p *Plan) { p.Deployment[0].Pipelines[0].Batch = 0 }, "deployment[0].pipelines[0].batch: found the number 0"},
		{"batch over limit", func(p *Plan) { p.Options.Put("max-batch", 1) }, "deployment[0].pipelines[0].batch: found the number 2, expected at most options.max_batch, 1"},
		{"batch mismatch", func(p *Plan) { p.Deployment[0].Pipelines[0].Batch = 3 }, "stages[0].infer_us: found 2 times, expected 3, one for each batch size"},
		{"partitions", func(p *Plan) { p.Options.Put("max-partitions", 1) }, "deployment[0].pipelines[0].stages: found 2 stages, expected at most options.max_partitions, 1"},
		{"no stages", func(p *Plan) { p.Deployment[1].Pipelines[0].Stages = nil }, "deployment[1].pipelines[0].stages: found an empty list"},
		{"hole in the blocks", func(p *Plan) { p.Deployment[0].Pipelines[0].Stages[1].Blocks[0] = 3 }, "stages[1].blocks: found the range [3, 4), expected a range that starts at 2"},
		{"overlapping blocks", func(p *Plan) { p.Deployment[0].Pipelines[0].Stages[0].Blocks[1] = 3 }, "stages[1].blocks: found the range [2, 4), expected a range that starts at 3"},
		{"empty range", func(p *Plan) { p.Deployment[1].Pipelines[0].Stages[0].Blocks = [2]int{0, 0} }, "stages[0].blocks: found the range [0, 0)"},
		{"missing last blocks", func(p *Plan) { p.Deployment[0].NumBlocks = 5 }, "stages[1].blocks: found an end at block 4, expected 5"},
		{"zero latency", func(p *Plan) { p.Deployment[1].Pipelines[0].Stages[0].InferUS[0] = 0 }, "stages[0].infer_us[0]: found the number 0, expected a positive latency"},
		{"negative latency", func(p *Plan) { p.Deployment[1].Pipelines[0].Stages[0].InferUS[0] = -5 }, "stages[0].infer_us[0]: found the negative value -0.005"},
		{"cut missing", func(p *Plan) { p.Deployment[0].Pipelines[0].Stages[0].Cut = nil }, "stages[0]: found no cut"},
		{"cut at the end", func(p *Plan) { p.Deployment[0].Pipelines[0].Stages[1].Cut = p.Deployment[0].Pipelines[0].Stages[0].Cut }, "stages[1].cut: found a cut after the last stage"},
		{"cut dtype", func(p *Plan) { p.Deployment[0].Pipelines[0].Stages[0].Cut.DType = "fp16" }, "cut.dtype: found the text \"fp16\", expected FP32, FP16"},
		{"latency sum", func(p *Plan) { p.Deployment[0].Pipelines[0].LatencyUS -= document.Micros(time.Millisecond) }, "latency_us: found the number 7767.167, expected the sum of inference and transfer at the planned batch, 8767.167"},
		{"slo broken", func(p *Plan) { p.Deployment[0].Pipelines[0].BatchBuildUS = document.Micros(4 * time.Millisecond) }, "found latency, batch building and margin of 20767.167 us, expected at most the SLO, 20000"},
		{"stage too slow", func(p *Plan) { p.Deployment[0].Pipelines[0].Stages[1].RPS = 700 }, "stages[1].rps: found the number 700, expected at least the pipeline's rate, 800"},
		{"stage too fast", func(p *Plan) { p.Deployment[0].Pipelines[0].Stages[1].RPS = 1720 }, "stages[1].rps: found the number 1720, expected at most what its replicas can do, 1714.04"},
		{"unknown device", func(p *Plan) { p.Deployment[1].Pipelines[0].Stages[0].Device = "P40" }, "stages[0].device: found the device \"P40\", expected a device of the plan's pools\n  hint: did you mean"},
		{"share", func(p *Plan) { p.Deployment[0].Pipelines[0].Stages[1].Share = 3 }, "stages[1].share: found the number 3, expected 1 to max_shares of the pool, 2"},
		{"replicas", func(p *Plan) { p.Deployment[0].Pipelines[0].Stages[0].Replicas = 3 }, "stages[0].placement: found 2 replicas placed, expected replicas, 3"},
		{"no replicas", func(p *Plan) { p.Deployment[0].Pipelines[0].Stages[0].Replicas = 0 }, "stages[0].replicas: found the number 0"},
		{"outside the pool", func(p *Plan) { p.Deployment[1].Pipelines[0].Stages[0].Placement[0].FirstDevice = 3 }, "placement[0]: found devices 3 to 3, expected devices 0 to 2"},
		{"before the pool", func(p *Plan) { p.Deployment[1].Pipelines[0].Stages[0].Placement[0].FirstDevice = -1 }, "placement[0]: found devices -1 to -1"},
		{"past the pool", func(p *Plan) { p.Deployment[0].Pipelines[0].Stages[1].Placement[0].FirstDevice = 1 }, "placement[0]: found devices 1 to 2, expected devices 0 to 1"},
		{"too many per device", func(p *Plan) { p.Deployment[0].Pipelines[0].Stages[1].Placement[0].PerDevice = 3 }, "per_device: found the number 3, expected at most 2 shares of 1/2 on a device"},
		{"device given twice", func(p *Plan) { p.Deployment[1].Pipelines[0].Stages[0].Placement[0].FirstDevice = 1 }, "pools[1]: found device 1 of P4 given to stages 2 times over"},
		{"device given one and a half times", func(p *Plan) {
			s := p.Deployment[1].Pipelines[0].Stages
			s[0].Device = "L4"
			s[0].Placement[0].FirstDevice = 1 // where one half is taken
		}, "pools[0]: found device 1 of L4 given to stages 1.5 times over"},
		{"device shared by halves", func(p *Plan) {
			s := p.Deployment[1].Pipelines[0].Stages
			s[0].Device, s[0].Share, s[0].GPUs, s[0].Placement[0].FirstDevice = "L4", 2, 0.5, 1
		}, ""},
		{"more devices than there are", func(p *Plan) { p.Deployment[1].Pipelines[0].Stages[0].GPUs = 2 }, "pools[1].count: found the number 3, expected the devices that the stages take together, 4"},
		{"time sharing", func(p *Plan) {
			p.Pools[1].Sharing = SharingTime
			p.Deployment[1].Pipelines[0].Stages[0].Placement[0].FirstDevice = 1
		}, ""},
		{"policy", func(p *Plan) { p.Policy.Name = "" }, "policy.name"},
		{"certified model", func(p *Plan) { p.Certificate.Models[0].Model = "x" }, "certified.models[0].model: found the model \"x\""},
		{"certified interval", func(p *Plan) { p.Certificate.Models[0].AttainmentCI = [2]float64{0.9, 0.8} }, "certified.models[0].attainment_interval"},
		{"absurd gap", func(p *Plan) { bad = 1e300; p.Objective.Gap = &bad }, "objective.gap: found the number 1e+300, expected what follows from value and bound"},
		{"gap of another bound", func(p *Plan) { bad = 0.5; p.Objective.Gap = &bad }, "objective.gap: found the number 0.5"},
		{"bound below value", func(p *Plan) { bad = 900; p.Objective.Bound = &bad }, "objective.bound: found the number 900, expected at least the value, 1000"},
		{"cost below its bound", func(p *Plan) { p.Objective.Name = "cost" }, "objective.bound: found the number 1010, expected at most the value, 1000"},
		{"absurd value", func(p *Plan) { p.Objective.Value = 1e300 }, "objective.value: found the number 1e+300"},
		{"absurd bound", func(p *Plan) { bad = -1e300; p.Objective.Bound = &bad }, "objective.bound: found the number -1e+300"},
		{"negative gap", func(p *Plan) { bad = -0.5; p.Objective.Gap = &bad }, "objective.gap: found the number -0.5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := ReadPlan(compat + "plan.v1.json")
			if err != nil {
				t.Fatal(err)
			}
			c.damage(p)
			err = p.Validate()
			switch {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

// A hostile plan must not make the check slow: many placements over many devices.
func TestPlanCheckIsLinear(t *testing.T) {
	p, err := ReadPlan(compat + "plan.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	p.Pools[1].Count = maxCount
	s := &p.Deployment[1].Pipelines[0].Stages[0]
	s.Placement = make([]Placement, 100_000)
	for i := range s.Placement {
		s.Placement[i] = Placement{FirstDevice: 0, PerDevice: 1, Replicas: maxCount}
	}
	start := cputime.Used()
	if p.Validate() == nil {
		t.Error("accepted")
	}
	if d := cputime.Used() - start; d > 5*time.Second {
		t.Errorf("took %v of CPU", d)
	}
}
