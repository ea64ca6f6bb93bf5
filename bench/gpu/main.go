package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"inferplan/engine/ort"
)

// cnns are the nine CNNs, profiled the two of them that most steps need a profile of.
var cnns, profiled = []string{"squeezenet", "resnet50", "shufflenet", "inception_v1", "inception_v2", "densenet121", "bvlc_alexnet", "zfnet512", "vgg19"}, []string{"resnet50", "squeezenet"}

// step is a row of the table of steps. Each of its parts, such as a model, is run and kept by itself; few are those at small sizes.
type step struct {
	name, title  string
	needs, limit int // seconds of a part on a GPU: about what it takes, and when it is ended
	run          func(c *run)
	all, few     []string
}

// steps returns the steps in the order of their worth.
func steps() []step {
	return []step{
		{"doctor", "driver, libraries, what the GPU is", 15, 60, doctor, nil, nil},
		{"outputs", "do answers equal the CPU's, TF32 off", 15, 120, outputs, append(slices.Clone(cnns), "ocr_det", "ocr_rec"), []string{"squeezenet", "shufflenet", "ocr_rec"}},
		{"fallback", "is an operator that the provider lacks refused", 15, 60, fallback, nil, nil},
		{"ceilings", "copies and matrix products", 30, 120, ceilings, nil, nil},
		{"profile", "one CNN, 8 batch sizes, 10 blocks, within 2 minutes", 80, 180, profileFirst, profiled, profiled},
		{"executor", "the server's runs against the profile's, beyond the planned rate", 40, 120, executorRatio, nil, nil},
		{"promise", "p50, p99, attainment against simulation at three loads", 60, 180, promise, []string{"0.5", "0.8", "0.95"}, []string{"0.5"}},
		{"repeat", "the same profile again: how far do its numbers move", 110, 240, repeat, nil, nil},
		{"graphs", "the same with CUDA graphs", 110, 240, again("profile-graphs.json", eightBatches, 50, "--cuda-graph"), nil, nil},
		{"half", "whole models in float16: how fast, and what it does to answers", 60, 180, again("profile-fp16.json", "1,8,64", 25, "--fp16"), nil, nil},
		{"shares", "1/2, 1/3 and 1/4 of the GPU with as many copies at work", 150, 300, shares, nil, nil},
		{"pooled", "two stages on two shares, served; how tensors cross between them", 95, 180, pooled, nil, nil},
		{"cascade", "a family of classifiers, served", 80, 240, cascade, nil, nil},
		{"swap", "loading, first run, unloading", 10, 60, swap, cnns, []string{"squeezenet"}},
		{"cnns", "all nine CNNs at batches 1 to 64", 45, 180, profileMore, cnns, []string{"squeezenet", "shufflenet"}},
	}
}

// parts returns the parts of a step as they are called; a step without any is its only one.
func (s *step) parts(quick bool) (out []string) {
	list := map[bool][]string{false: s.all, true: s.few}[quick]
	for _, part := range list {
		out = append(out, s.name+"/"+part)
	}
	return append(out, []string{s.name}[min(1, len(list)):]...)
}

// options are the flags. Paths are absolute.
type options struct {
	plan, device, out, work, digits string
	quick, rehearsal                bool // a rehearsal on a CPU is always quick
}

// result is what a part found.
type result struct {
	Part     string   `json:"part"` // STEP or STEP/PART
	Status   string   `json:"status"`
	Device   string   `json:"device"` // name of the GPU, or cpu
	Seconds  float64  `json:"seconds"`
	Verdicts []string `json:"verdicts,omitempty"` // figures held against what is promised
	Error    string   `json:"error,omitempty"`

	text bytes.Buffer
}

// How a part ended: every verdict holds, or there is none; a figure is not what was promised; it could not be done.
const passed, missed, failed = "passed", "missed", "failed"

// judge holds a figure against what is promised.
func (r *result) judge(figure, want string, got float64, ok bool) {
	mark := "ok  "
	if !ok {
		mark, r.Status = "MISS", missed
	}
	r.Verdicts = append(r.Verdicts, fmt.Sprintf("%s %s: %.4g, asked %s", mark, figure, got, want))
	r.say("%s", r.Verdicts[len(r.Verdicts)-1])
}

// say prints a line.
func (r *result) say(format string, a ...any) { fmt.Fprintf(&r.text, format+"\n", a...) }

// name returns the part without its step, such as a model.
func (r *result) name() string { _, name, _ := strings.Cut(r.Part, "/"); return name }

// read returns the last result of every part. Results of another device are an error.
func (o *options) read() (map[string]result, error) {
	out := map[string]result{}
	data, err := os.ReadFile(o.lines())
	for line := range strings.Lines(string(data)) {
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", o.lines(), err)
		}
		if here := o.deviceName(); r.Device != here {
			return nil, fmt.Errorf("%s holds results of %s, here is %s: choose another folder with --out", o.out, r.Device, here)
		}
		out[r.Part] = r
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return out, err
}

func (o *options) lines() string { return filepath.Join(o.out, "gpu-check.jsonl") }

// deviceName is the GPU's name; without one it is the device as given.
func (o *options) deviceName() string {
	gpus, _ := listGPUs() // the step doctor says what is wrong
	for _, g := range gpus {
		if g.ID == o.device {
			return g.Name
		}
	}
	return o.device
}

// listGPUs is replaced by tests.
var listGPUs = ort.GPUs

// runPart runs a part and adds its result to the others. It is written down as failed before it begins, so that a part that
// is killed has failed.
func (o *options) runPart(part string) error {
	all := steps()
	i := slices.IndexFunc(all, func(s step) bool { return slices.Contains(s.parts(o.quick), part) })
	if i < 0 {
		return fmt.Errorf("found %q, expected list or a part that it prints", part)
	}
	c := &run{options: *o, result: result{Part: part, Device: o.deviceName(), Status: failed, Error: "it was ended"}}
	keep := func() error {
		line, err := json.Marshal(&c.result)
		return errors.Join(err, add(o.lines(), line))
	}
	if err := keep(); err != nil {
		return err
	}
	begin := time.Now()
	c.Status, c.Error = passed, ""
	c.say("== %s: %s", part, all[i].title)
	c.openDevice()
	if c.err == nil {
		all[i].run(c)
		c.check(c.engine.Close())
	}
	if c.err != nil {
		c.Status, c.Error = failed, c.err.Error()
	}
	c.Seconds = float64(time.Since(begin).Milliseconds()/100) / 10
	c.say("%s after %.1f s %s", c.Status, c.Seconds, c.Error)
	fmt.Println(c.text.String())
	return errors.Join(keep(), add(filepath.Join(o.out, "gpu-check.txt"), c.text.Bytes()))
}

// add writes to the end of a file.
func add(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	return errors.Join(err, file.Close())
}

func main() {
	// The loader reads LD_LIBRARY_PATH when a program starts, so this one starts again where that lacks folders of CUDA's libraries.
	if folders := ort.LibraryPath(); len(folders) > 0 {
		os.Setenv("LD_LIBRARY_PATH", ort.JoinPath(folders, os.Getenv("LD_LIBRARY_PATH")))
		if self, err := os.Executable(); err == nil {
			_ = syscall.Exec(self, os.Args, os.Environ()) // the step doctor says what is missing
		}
	}
	var o options
	flag.StringVar(&o.plan, "plan", "", "the program plan")
	flag.StringVar(&o.device, "device", "cuda:0", "cuda:<n>, or cpu for a rehearsal")
	flag.StringVar(&o.out, "out", "", "folder for results")
	flag.StringVar(&o.work, "work", "", "folder for models and other large files")
	flag.StringVar(&o.digits, "digits", "", "folder with the digits family and samples.csv.gz; what lacks there is made")
	flag.BoolVar(&o.quick, "quick", false, "small sizes")
	flag.Parse()
	o.rehearsal = strings.HasPrefix(o.device, "cpu")
	o.quick = o.quick || o.rehearsal
	results, err := o.read()
	if err == nil && flag.Arg(0) == "list" {
		for _, s := range steps() {
			for _, part := range s.parts(o.quick) {
				fmt.Println(part, s.needs, s.limit, results[part].Status)
			}
		}
	} else if err == nil {
		err = o.runPart(flag.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpu-check:", err)
		os.Exit(5)
	}
}
