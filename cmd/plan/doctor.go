package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"inferplan/engine"
	"inferplan/engine/models"
	"inferplan/engine/ort"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/profiler"
	"inferplan/solver/highs"
)

// doctorLine is one line of the doctor's report.
type doctorLine struct {
	Subject string `json:"what"`
	State   string `json:"state"` // ok, missing, none
	Value   string `json:"found"`
	Type    string `json:"type,omitempty"` // the command that mends it
}

// newDoctorCommand makes the verb doctor, which lists what this machine has of all that the verbs need. If something
// needed is missing, it exits with the code for the environment.
func newDoctorCommand(g *globalFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "What was found on this machine, what is missing, what to type",
		Example: `  plan doctor
  plan doctor --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := newPrinter(cmd, g)
			found, ok := diagnose()
			if g.json {
				if err := p.PrintJSON(found); err != nil {
					return err
				}
			} else {
				rows := document.Map(found, func(f *doctorLine) []string { return []string{f.Subject, f.State, f.Value, f.Type} })
				if err := p.PrintTable("llll", []string{"what", "state", "found", "to type"}, rows); err != nil {
					return err
				}
			}
			if !ok {
				return &exitError{code: exitEnvironment}
			}
			return nil
		},
	}
}

// diagnose looks for all that the verbs need. ok is also true on a machine without a GPU. A line has a subject, a
// state (ok, missing or none), what was found, and what to type.
func diagnose() (lines []doctorLine, ok bool) {
	ok = true
	add := func(subject, state, text, hint string) {
		lines = append(lines, doctorLine{subject, state, text, hint})
		ok = ok && state != "missing"
	}

	// The solver and the inference engine.
	add("solver", "ok", highs.Version(), "")
	eng, err := ort.Open("")
	if err != nil {
		add("onnxruntime", "missing", err.Error(), "make setup")
	} else {
		info := eng.Info()
		add("onnxruntime", "ok", info.Name+" "+info.Version+" at "+info.Library, "")
		eng.Close()
	}

	// The demo models.
	if dir, err := models.Dir(); err != nil {
		add("demo models", "none", "only the demo and the tests need them", "make setup")
	} else if _, err := os.Stat(dir); err != nil {
		add("demo models", "none", "only the demo and the tests need them", "make setup")
	} else {
		add("demo models", "ok", dir, "")
	}

	// The devices.
	if cpus, err := engine.CPUs(); err != nil {
		add("cpus", "missing", err.Error(), "")
	} else {
		add("cpus", "ok", fmt.Sprintf("%d that this process may use", len(cpus)), "")
	}
	gpus, err := ort.GPUs()
	switch {
	case err != nil:
		add("gpus", "none", err.Error(), "")
	case len(gpus) == 0:
		add("gpus", "none", "no NVIDIA GPU (NVML is not here, or finds no driver)", "")
	}
	for _, d := range gpus {
		add("gpu "+d.ID, "ok", describeGPU(d), "")
	}

	// The libraries that GPUs need, and the service that divides them.
	if len(gpus) > 0 {
		for _, r := range ort.CUDA() {
			if r.Err != nil {
				add(r.Name, "missing", fmt.Sprintf("%s: %v", r.Purpose, r.Err), r.Hint())
			} else {
				add(r.Name, "ok", r.Purpose, "")
			}
		}
		if set := os.Getenv(relocatedEnv); set != "" {
			add("library path", "ok", "CUDA's libraries were found beside the loader's path: LD_LIBRARY_PATH="+os.Getenv("LD_LIBRARY_PATH"), "")
		}
		switch state, text := profiler.MPSState(); state {
		case profiler.MPSAbsent:
			add("mps", "none", text+": shares of a GPU are made by time slicing", "install the driver's utilities")
		default:
			add("mps", "ok", text, "")
		}
	}
	return lines, ok
}

// describeGPU returns a GPU's description in one line.
func describeGPU(d engine.Device) string {
	s := fmt.Sprintf("%s, %d MiB", d.Name, d.MemoryBytes>>20)
	if d.Multiprocessors > 0 {
		s += fmt.Sprintf(", %d multiprocessors", d.Multiprocessors)
	}
	if d.Architecture != "" {
		s += ", architecture " + d.Architecture
	}
	if d.PowerLimitWatts > 0 {
		s += fmt.Sprintf(", %.0f W", d.PowerLimitWatts)
	}
	return s + ", driver " + d.Driver
}

// thisMachine returns this machine's devices, for the defaults of solve. GPUs of the same kind are counted together.
func thisMachine() planner.Machine {
	var m planner.Machine
	if cpus, err := engine.CPUs(); err == nil {
		m.Cores = len(cpus)
	}
	gpus, err := ort.GPUs()
	if err != nil {
		return m // if the GPUs cannot be listed, plan for the CPUs
	}
	for _, d := range gpus {
		i := 0
		for i < len(m.GPUs) && m.GPUs[i].Kind != d.Kind {
			i++
		}
		if i == len(m.GPUs) {
			m.GPUs = append(m.GPUs, planner.LocalGPUs{Kind: d.Kind, MemoryBytes: d.MemoryBytes})
		}
		m.GPUs[i].Count++
	}
	return m
}
