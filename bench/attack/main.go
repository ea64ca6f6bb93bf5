package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
	"inferplan/bench/served"
)

// attack holds the flags and the program under attack, whose folder is for scratch.
type attack struct {
	served.Program
	root    string // of the repository: seeds of documents
	scale   float64
	seed    uint64
	soak    time.Duration
	picture string
}

func main() {
	hostileClients() // this program is their process, too
	instrument.Main(newInstrument())
}

func newInstrument() *instrument.Instrument {
	a := &attack{}
	i := &instrument.Instrument{Name: "attack", Strict: true}
	for _, p := range []struct {
		name, title string
		measure     func(r *instrument.Run) error
	}{
		{"requests", "Mutants of requests", a.requests},
		{"documents", "Mutants of documents", a.documents},
		{"magnitudes", "Figures at the ends of their ranges", a.magnitudes},
		{"onnx", "Mutants of model files", a.onnx},
		{"greedy", "Clients that take all the memory they get", a.greedy},
		{"shares", "Clients that send valid requests without end", a.shares},
		{"calls", "Hostile messages of programs", a.calls},
		{"faults", "Faults from outside", a.faults},
		{"hang", "Stopped workers", a.hang},
		{"switches", "Switches of plans", a.switches},
		{"stores", "Damaged files of accepted requests", a.stores},
		{"agents", "Hostile peers and servers of models", a.agents},
		{"soak", "A long run under watch", a.soaking},
	} {
		i.Parts = append(i.Parts, instrument.Part{Name: p.name, Title: p.title, OnRequest: p.name == "soak", Measure: func(r *instrument.Run, _ *instrument.Table) error { return p.measure(r) }})
	}
	i.Flags = func(f *flag.FlagSet) {
		f.StringVar(&a.Path, "plan", "bin/plan", "program to attack")
		f.StringVar(&a.root, "root", ".", "the repository")
		f.Float64Var(&a.scale, "scale", 1, "share of the counts that are asked for")
		f.Uint64Var(&a.seed, "seed", 1, "of mutants and arrivals")
		f.DurationVar(&a.soak, "soak", time.Hour, "length of the soak")
		f.StringVar(&a.picture, "picture", "", "file for the picture of the soak")
	}
	i.Begin = func(*instrument.Run) (err error) {
		if a.Path, err = filepath.Abs(a.Path); err == nil {
			a.Folder, err = os.MkdirTemp("", "attack-")
		}
		return err
	}
	i.End = func(*instrument.Run) error { return os.RemoveAll(a.Folder) }
	return i
}

// source is who asks for what is measured here.
const source = "operations: no cheap client, hung worker or bad file takes the service down"

// state states a figure and returns it. The note is a format with its arguments.
func state(r *instrument.Run, claim, asked string, measured float64, unit string, holds bool, note string, args ...any) *figures.Figure {
	return r.Figure(figures.Figure{Claim: claim, Source: source, Asked: asked,
		Measured: math.Round(1000*measured) / 1000, Unit: unit, Holds: figures.If(holds), Note: fmt.Sprintf(note, args...)})
}

// atMost states a figure that may not be above a limit.
func atMost(r *instrument.Run, claim string, limit, measured float64, unit, note string, args ...any) *figures.Figure {
	return state(r, claim, fmt.Sprintf("at most %g", limit), measured, unit, measured <= limit, note, args...)
}

// none states how many of several were wrong, where none may be.
func none(r *instrument.Run, claim string, wrong, all int, note string, args ...any) *figures.Figure {
	return state(r, claim, "none", float64(wrong), fmt.Sprintf("of %d", all), wrong == 0, note, args...)
}

// count returns a share of n, at least 20.
func (a *attack) count(n int) int { return max(int(math.Ceil(float64(n)*a.scale)), min(n, 20)) }
