package gpucheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"inferplan/engine"
	"inferplan/engine/ort"
)

// Document is the result: gpu-check.json.
type Document struct {
	Format    string       `json:"format"`
	Rehearsal bool         `json:"rehearsal"` // on a CPU: no figure is about a GPU
	Device    string       `json:"device"`
	Name      string       `json:"name,omitempty"`
	Driver    string       `json:"driver,omitempty"`
	Engine    string       `json:"engine,omitempty"`
	Steps     []StepResult `json:"steps"`
}

// documentFormat names the document's version.
const documentFormat = "inferplan.gpu-check/v1"

// How a step ended.
const (
	Passed  = "passed"  // every verdict holds, or there is none
	Missed  = "missed"  // it ran, and a figure is not what was promised
	Failed  = "failed"  // it could not be done
	Partial = "partial" // its time was up; the next call goes on
)

// StepResult is the result of a step.
type StepResult struct {
	Step     string    `json:"step"`
	Title    string    `json:"title"`
	Status   string    `json:"status"`
	Seconds  float64   `json:"seconds"`
	Verdicts []Verdict `json:"verdicts,omitempty"`
	Tables   []Table   `json:"tables,omitempty"`
	Notes    []string  `json:"notes,omitempty"`
	Error    string    `json:"error,omitempty"`
	Files    []string  `json:"files,omitempty"` // written beside this document
}

// Verdict holds a figure against what is promised.
type Verdict struct {
	What string  `json:"what"`
	Want string  `json:"want"`
	Got  float64 `json:"got"`
	OK   bool    `json:"ok"`
}

// Table is rows of text for people, and for who reads the document.
type Table struct {
	Title  string     `json:"title"`
	Header []string   `json:"header"`
	Rows   [][]string `json:"rows"`
}

// judged returns whether an earlier call came to a verdict whose name begins so.
func (r *StepResult) judged(prefix string) bool {
	return slices.ContainsFunc(r.Verdicts, func(v Verdict) bool { return strings.HasPrefix(v.What, prefix) })
}

// table is the result's table of a title, with the rows of earlier calls.
func (r *StepResult) table(title string, header ...string) *Table {
	for i := range r.Tables {
		if r.Tables[i].Title == title {
			return &r.Tables[i]
		}
	}
	r.Tables = append(r.Tables, Table{Title: title, Header: header})
	return &r.Tables[len(r.Tables)-1]
}

func (r *StepResult) verdict(what, want string, got float64, ok bool) {
	v := Verdict{what, want, got, ok}
	if i := slices.IndexFunc(r.Verdicts, func(v Verdict) bool { return v.What == what }); i >= 0 {
		r.Verdicts[i] = v // of an earlier call
		return
	}
	r.Verdicts = append(r.Verdicts, v)
}

// wrote names a file beside the document.
func (r *StepResult) wrote(name string) {
	if !slices.Contains(r.Files, name) {
		r.Files = append(r.Files, name)
	}
}

func (r *StepResult) note(format string, a ...any) {
	if text := fmt.Sprintf(format, a...); !slices.Contains(r.Notes, text) {
		r.Notes = append(r.Notes, text)
	}
}

func (v Verdict) String() string {
	mark := "ok  "
	if !v.OK {
		mark = "MISS"
	}
	return fmt.Sprintf("%s %s: %.4g, asked %s", mark, v.What, v.Got, v.Want)
}

func open(o *Options) (*Document, error) {
	doc := &Document{Format: documentFormat, Device: o.Device, Rehearsal: strings.HasPrefix(o.Device, "cpu")}
	data, err := os.ReadFile(filepath.Join(o.Out, "gpu-check.json"))
	if errors.Is(err, os.ErrNotExist) {
		return doc, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what was done: %w", err)
	}
	have := &Document{}
	if err := json.Unmarshal(data, have); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(o.Out, "gpu-check.json"), err)
	}
	if have.Format != documentFormat || have.Device != o.Device {
		return nil, fmt.Errorf("%s holds results of %s (%s): choose another folder with --out", o.Out, have.Device, have.Format)
	}
	return have, nil
}

// sameGPU refuses to mix the results of two kinds of GPU, as of machines that one
// has in turn, and notes which it is.
func (d *Document) sameGPU(o *Options) error {
	gpus, err := listGPUs()
	if err != nil || d.Rehearsal {
		return nil // the step doctor says what is wrong
	}
	i := slices.IndexFunc(gpus, func(g engine.Device) bool { return g.ID == o.Device })
	if i < 0 {
		return nil
	}
	if d.Name != "" && d.Name != gpus[i].Name {
		return fmt.Errorf("%s holds results of %s, here is %s: choose another folder with --out", o.Out, d.Name, gpus[i].Name)
	}
	d.Name, d.Driver = gpus[i].Name, gpus[i].Driver
	return nil
}

// listGPUs is replaced by tests.
var listGPUs = ort.GPUs

func (d *Document) find(name string) *StepResult {
	for i := range d.Steps {
		if d.Steps[i].Step == name {
			return &d.Steps[i]
		}
	}
	return nil
}

func (d *Document) put(r StepResult) {
	if have := d.find(r.Step); have != nil {
		*have = r
		return
	}
	d.Steps = append(d.Steps, r)
	order := Names()
	slices.SortStableFunc(d.Steps, func(a, b StepResult) int { return slices.Index(order, a.Step) - slices.Index(order, b.Step) })
}

// write puts the document and its tables into the folder, whole.
func (d *Document) write(o *Options) error {
	if p, err := readProfile(filepath.Join(o.Out, "profile.json")); err == nil && len(p.Devices) > 0 {
		x := p.Devices[0]
		d.Name, d.Driver, d.Engine = x.Name, x.Driver, x.Engine+" "+x.EngineVersion
	}
	data, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return err
	}
	var text bytes.Buffer
	d.Print(&text)
	return errors.Join(replace(filepath.Join(o.Out, "gpu-check.json"), append(data, '\n')), replace(filepath.Join(o.Out, "gpu-check.txt"), text.Bytes()))
}

func replace(path string, data []byte) error {
	if err := os.WriteFile(path+".part", data, 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return os.Rename(path+".part", path)
}
