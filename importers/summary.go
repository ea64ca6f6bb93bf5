package importers

import (
	"fmt"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
)

type recordsModelJSON struct {
	Model           string   `json:"model"`
	Accuracy        float64  `json:"accuracy"`
	AccuracyHeldOut *float64 `json:"accuracy_held_out,omitempty"`
	Levels          int      `json:"distinct_certainties"`
}

// recordsJSON returns for each model its accuracy on the samples that are planned on and, if there are any, on those
// held out, and the number of distinct certainties (levels). Correct has '1' for each right answer.
func recordsJSON(rec *formats.Records) []recordsModelJSON {
	var out []recordsModelJSON
	for i := range rec.Models {
		m := &rec.Models[i]
		correctShare := func(s string) float64 { return float64(strings.Count(s, "1")) / float64(len(s)) }
		j := recordsModelJSON{Model: m.Model, Accuracy: correctShare(m.Correct[:rec.PlanningSamples])}
		if rec.PlanningSamples < rec.Samples {
			v := correctShare(m.Correct[rec.PlanningSamples:])
			j.AccuracyHeldOut = &v
		}
		distinct := slices.Clone(m.Certainty)
		slices.Sort(distinct)
		j.Levels = len(slices.Compact(distinct))
		out = append(out, j)
	}
	return out
}

// PrintRecords shows records that were put into the profile at a path. replaced says that the profile had records of
// the same models.
func PrintRecords(p Printer, asJSON bool, rec *formats.Records, path string, replaced bool) error {
	if asJSON {
		return p.PrintJSON(map[string]any{"output": path, "samples": rec.Samples, "planning": rec.PlanningSamples, "models": recordsJSON(rec), "replaced": replaced})
	}
	var rows [][]string
	for _, m := range recordsJSON(rec) {
		heldOut := "-"
		if m.AccuracyHeldOut != nil {
			heldOut = fmt.Sprintf("%.4f", *m.AccuracyHeldOut)
		}
		rows = append(rows, []string{m.Model, fmt.Sprintf("%.4f", m.Accuracy), heldOut, fmt.Sprint(m.Levels)})
	}
	if err := p.PrintTable("lrrr", []string{"model", "accuracy", "held out", "distinct certainties"}, rows); err != nil {
		return err
	}
	verb := "added to"
	if replaced {
		verb = "replaced in"
	}
	fmt.Fprintf(p, "%s %s: %s, %d to plan on, %d held out\n", verb, path, document.CountOf(rec.Samples, "sample"), rec.PlanningSamples, rec.Samples-rec.PlanningSamples)
	return nil
}

// PrintLLMs prints the language models that were added to a profile.
func PrintLLMs(p Printer, asJSON bool, out string, profile *formats.Profile) error {
	if asJSON {
		return p.PrintJSON(map[string]any{"output": out, "models": len(profile.LLMs), "llms": profile.LLMs, "notes": profile.Notes})
	}
	for _, n := range profile.Notes {
		p.PrintNote("note: %s", n)
	}
	var rows [][]string
	for i := range profile.LLMs {
		m := &profile.LLMs[i]
		for k := range m.Instances {
			in := &m.Instances[k]
			it := &in.Iteration
			// Columns 7 and 8 have the errors of the fit, if it is one.
			row := []string{m.Model, fmt.Sprintf("%d x %s", in.TensorParallel, in.Device), formatNanosAsMillis(it.BaseNS + it.CPUNS), formatNanosAsMillis(it.SequenceNS + it.CPUSequenceNS), formatNanosAsMillis(it.ContextNS * 1000), formatNanosAsMillis(it.PromptNS), fmt.Sprint(it.HingeTokens), "", "", fmt.Sprint(in.KVTokens)}
			if f := in.Fit; f != nil {
				row[7] = fmt.Sprintf("%.1f %% (%.0f %%)", 100*f.DecodeMAPE, 100*f.DecodeMax)
				if f.PrefillMax > 0 {
					row[8] = fmt.Sprintf("%.1f %% (%.0f %%)", 100*f.PrefillMAPE, 100*f.PrefillMax)
				}
			}
			rows = append(rows, row)
		}
	}
	if err := p.PrintTable("llrrrrrrrr", []string{"model", "devices", "base ms", "+ sequence", "+ 1000 context", "+ prompt token", "hinge", "decode off (max)", "prefill off (max)", "KV tokens"}, rows); err != nil {
		return err
	}
	fmt.Fprintf(p, "wrote %s\n", out)
	return nil
}

// formatNanosAsMillis writes nanoseconds as milliseconds with four digits.
func formatNanosAsMillis(ns float64) string { return fmt.Sprintf("%.4g", ns/1e6) }
