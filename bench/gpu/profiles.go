package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"inferplan/engine/graph/onnxpb"
	"inferplan/formats"
	"inferplan/formats/diff"
)

// doctor asks plan what it finds.
func doctor(c *run) {
	text, err := c.try("doctor")
	c.judge("things missing", "none", float64(strings.Count(string(text), " missing ")), err == nil)
}

// lacking is a model with the determinant, for which ONNX Runtime's CUDA provider has no kernel.
const lacking = `ir_version: 8 opset_import { version: 17 } graph { name: "lacking"
	node { op_type: "Relu" name: "known" input: "x" output: "r" } node { op_type: "Det" name: "unknown" input: "r" output: "y" }
	input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_param: "N" } dim { dim_value: 4 } dim { dim_value: 4 } } } } }
	output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_param: "N" } } } } } }`

// fallback profiles a model that the provider cannot execute whole: it must be refused, and the operator named. The CPU has every operator.
func fallback(c *run) {
	m, path := &onnxpb.Model{}, c.workPath("lacking.onnx")
	c.check(prototext.Unmarshal([]byte(lacking), m))
	data, err := proto.Marshal(m)
	c.check(errors.Join(err, os.WriteFile(path, data, 0o644)))
	said, err := c.try("profile", path, "--on", c.options.device, "--batches", "1", "--blocks", "1", "--budget", "5s", "--force", "--json", "-o", c.workPath("lacking.json"))
	c.say("%s", said)
	refused := err != nil && strings.Contains(string(said), "Det")
	c.judge("operators that run elsewhere, or that a CPU lacks", "none: refused, and named", 0, refused != c.rehearsal && refused == (err != nil))
}

const eightBatches = "1,2,4,8,16,32,48,64"

// profileFirst measures one model within two minutes.
func profileFirst(c *run) {
	begin := time.Now()
	c.profile(c.outPath("profile.json"), []string{c.name()}, eightBatches, 75)
	seconds := time.Since(begin).Seconds()
	c.judge("seconds with loading and cutting", "<= 120", seconds, seconds <= 120)
}

// profileMore measures one model at all batch sizes; what is measured already costs nothing again.
func profileMore(c *run) {
	c.profile(c.outPath("profile.json"), []string{c.name()}, "1,2,4,8,16,32,64", 25)
}

// again returns a step that measures two models at the cuts of step profile and sets the two profiles against each other.
func again(file, batches string, seconds int, options ...string) func(*run) {
	return func(c *run) {
		first, file := c.outPath("profile.json"), c.outPath(file)
		if c.rehearsal { // a CPU has no CUDA graphs
			options = slices.DeleteFunc(options, func(o string) bool { return o == "--cuda-graph" })
		}
		_ = os.Remove(file)
		c.profile(file, profiled, batches, seconds, append(options, "--cuts", first)...)
		_, _ = c.try("diff", first, file) // ends with 1: they differ
		p, err := formats.ReadProfile(file)
		for i := 0; c.check(err) && i < len(p.Models) && p.Models[i].FP16 != nil; i++ {
			c.say("%s against float32: %+v", p.Models[i].Model, *p.Models[i].FP16)
		}
	}
}

// repeat measures again what step profile measured.
func repeat(c *run) {
	const file = "profile-again.json"
	defer os.Remove(c.outPath(file))
	again(file, eightBatches, 50)(c)
	var found diff.Result
	changes, _ := c.try("diff", c.outPath("profile.json"), c.outPath(file), "--tolerance", "0", "--json")
	if c.err != nil || !c.check(json.Unmarshal(changes, &found)) {
		return
	}
	var differences []float64
	for _, b := range found.Blocks {
		if b.Block != diff.WholeModel && b.OldUS.D() > 50*time.Microsecond {
			differences = append(differences, 100*math.Abs(b.Relative))
		}
	}
	n := len(differences)
	if n == 0 {
		c.check(errors.New("no block above 50 us is in both profiles"))
		return
	}
	slices.Sort(differences)
	c.judge(fmt.Sprintf("median difference of %d blocks above 50 us, %%", n), "<= 2", differences[n/2], differences[n/2] <= 2)
}

// shares measures 1/2, 1/3 and 1/4 of the device with as many copies at work.
func shares(c *run) {
	if c.rehearsal {
		c.say("a CPU has no shares")
	} else {
		c.profile(c.outPath("profile.json"), profiled, "1,8", 70, "--shares", "2,3,4")
	}
}
