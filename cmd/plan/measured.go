package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/check"
	"inferplan/planner/inputs"
	"inferplan/planner/kind"
	"inferplan/planner/remeasure"
	"inferplan/policy/policies"
)

// servedRun has the measurements of a server that ran a plan, from the files of --measured.
type servedRun struct {
	plan                  *formats.Plan // the plan that was served
	times                 *turn.ServiceTimes
	report                *formats.Report
	timesPath, reportPath string
	changedFiles          []changedFile
}

// changedFile is a profile or a workload with measured numbers, which is written beside the plan.
type changedFile struct {
	role, path string
	text       []byte
}

// readServed reads the plan of --from and the files of --measured: recorded service times and a report, one of each at
// most, each known by what it holds.
func (o *solveOptions) readServed() (*servedRun, error) {
	plan, err := readPlan(o.runningPlan)
	if err != nil {
		return nil, err
	}
	s := &servedRun{plan: plan}
	for _, path := range o.measured {
		switch kindAt(path) {
		case formats.KindReport:
			if s.report != nil {
				return nil, usageErrorf("--measured: found the reports %s and %s, expected one: that of the server or of its client", s.reportPath, path)
			}
			if s.report, err = formats.ReadReport(path); err != nil {
				return nil, withCode(exitUsage, err)
			}
			s.reportPath = path
			if s.report.Source == "simulate" {
				return nil, usageErrorf("--measured %s: found a simulated report, expected one of plan serve or plan load", path)
			}
		case "":
			if s.times != nil {
				return nil, usageErrorf("--measured: found the service times %s and %s, expected one file of them", s.timesPath, path)
			}
			if s.times, err = turn.ReadServiceTimes(path); err != nil {
				return nil, withCode(exitUsage, err)
			}
			s.timesPath = path
		default:
			return nil, usageErrorf("--measured %s: found a %s, expected service times (plan serve --record) or a report (plan serve --output)", path, kindAt(path))
		}
	}
	return s, nil
}

// pathOf returns the file of a role: the flag's value, else the file that the served plan names, if it is there, else "".
func (s *servedRun) pathOf(role, flag, planPath string) string {
	if i := slices.IndexFunc(s.plan.Inputs, func(i formats.Input) bool { return i.Role == role }); flag == "" && i >= 0 {
		path := filepath.Join(filepath.Dir(planPath), filepath.FromSlash(s.plan.Inputs[i].Path))
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return flag
}

// useServed puts measured numbers into the documents: times into the profile, rates into the workload. It returns the
// differences from the profile and the plan, as assumptions of the new plan.
func (o *solveOptions) useServed(r *inputs.Reader, s *servedRun) ([]string, error) {
	if wantedKind, _ := r.Workload.WorkloadKind(); wantedKind != s.plan.Kind {
		return nil, usageErrorf("--from %s: found a plan of kind %s, and the workload asks for one of kind %s", o.runningPlan, s.plan.Kind, wantedKind)
	}
	requested, err := document.Marshal(r.Workload)
	if err != nil {
		return nil, err
	}
	lines, err := o.useTimes(r, s)
	if err != nil {
		return nil, err
	}
	rates, err := useRates(r, s)
	if err != nil {
		return nil, err
	}
	lines = append(lines, rates...)
	if err := o.replaceWorkload(r, s, requested); err != nil {
		return nil, err
	}
	for _, path := range o.measured {
		if err := r.AddFile("measured", path); err != nil {
			return nil, err
		}
	}
	return lines, nil
}

// useTimes scales the times of the profile by what was recorded: those of runs, and of the work of language models. The
// changed profile is written beside the plan, which names it.
func (o *solveOptions) useTimes(r *inputs.Reader, s *servedRun) (lines []string, err error) {
	measured := r.Profile
	if s.times != nil {
		paces, loads, err := s.paces()
		if err != nil {
			return nil, err
		}
		for i := range paces {
			lines = append(lines, "times: "+paces[i].String())
		}
		for i := range loads {
			lines = append(lines, "times: "+loads[i].String())
		}
		measured = cmp.Or(remeasure.WithPaces(measured, paces), measured)
		measured = cmp.Or(remeasure.WithLoads(measured, loads), measured)
	}
	if s.report != nil {
		for i := range s.report.Work {
			lines = append(lines, "times: "+remeasure.WorkLine(&s.report.Work[i]))
		}
		measured = cmp.Or(remeasure.WithWork(measured, s.report.Work), measured)
	}
	if len(lines) == 0 || measured == r.Profile {
		return lines, nil
	}

	// The times of the plan were held against what was served. Those of another profile may differ otherwise.
	isProfile := func(f formats.Input) bool { return f.Role == "profile" }
	read, planned := slices.IndexFunc(r.Files, isProfile), slices.IndexFunc(s.plan.Inputs, isProfile)
	if read >= 0 && planned >= 0 && r.Files[read].SHA256 != s.plan.Inputs[planned].SHA256 {
		lines = append(lines, "profile: not the file that the served plan was made from; its times are scaled as those of the plan differ from what was served")
	}
	measured.Notes = append(slices.Clone(measured.Notes), "times as served: "+joinList(o.measured))
	r.Profile, r.Workload = measured, planner.WithPromisedSLOs(r.Workload, s.plan)
	return lines, o.replaceFile(r, s, "profile", measured)
}

// paces returns how long the recorded runs and loads took, of the planned times.
func (s *servedRun) paces() ([]remeasure.Pace, []remeasure.LoadPace, error) {
	tables, err := policies.Compile(s.plan)
	if err != nil {
		return nil, nil, withCode(exitUsage, err)
	}
	paces, err := remeasure.Paces(s.plan, tables, s.times.Runs)
	if e, ok := errors.AsType[*document.Error](err); ok {
		e.File = s.timesPath
	}
	return paces, remeasure.LoadPaces(tables, s.times.Loads), withCode(exitUsage, err)
}

// namesFile reports whether the served plan names the file at a path.
func (s *servedRun) namesFile(path, planPath string) bool {
	info, err := os.Stat(path)
	return err == nil && slices.ContainsFunc(s.plan.Inputs, func(i formats.Input) bool {
		named, err := os.Stat(filepath.Join(filepath.Dir(planPath), filepath.FromSlash(i.Path)))
		return err == nil && os.SameFile(info, named)
	})
}

// replaceFile names a changed document as the plan's, in place of the one that was read. It is written beside the plan
// when that is written, but to no file that was read or that the served plan names. A document of another kind in its place is an error. If the plan goes to standard output, the
// document is in no file.
func (o *solveOptions) replaceFile(r *inputs.Reader, s *servedRun, role string, doc any) error {
	text, err := document.Marshal(doc)
	if err != nil {
		return err
	}
	isRead := func(path string) bool {
		return slices.ContainsFunc(r.Files, func(f formats.Input) bool {
			return f.Role == role && filepath.Join(filepath.Dir(o.outPath), filepath.FromSlash(f.Path)) == filepath.Clean(path)
		})
	}
	stem, ending := strings.TrimSuffix(o.outPath, filepath.Ext(o.outPath)), "."+role+".json"
	for s.namesFile(stem+ending, o.runningPlan) || isRead(stem+ending) {
		stem += ".new"
	}
	r.Files = slices.DeleteFunc(r.Files, func(f formats.Input) bool { return f.Role == role })
	if o.outPath == toStdout {
		r.Unnamed = append(r.Unnamed, role+": with what was measured, in no file")
		return nil
	}
	path := stem + ending
	if _, err := os.Stat(path); err == nil && kindAt(path) != role {
		return usageErrorf("%s: found a file there that is no %[2]s, expected none: the %[2]s with what was measured is written to it", path, role)
	}
	sum := sha256.Sum256(text)
	r.Files = append(r.Files, formats.Input{Role: role, Path: filepath.Base(path), SHA256: hex.EncodeToString(sum[:])})
	s.changedFiles = append(s.changedFiles, changedFile{role, path, text})
	return nil
}

// replaceWorkload names the workload as the plan's if it is no longer the requested one. If it names files of another
// folder than the plan's, it is in no file, and the plan states alone what it was asked for.
func (o *solveOptions) replaceWorkload(r *inputs.Reader, s *servedRun, requested []byte) error {
	text, err := document.Marshal(r.Workload)
	if err != nil || bytes.Equal(text, requested) {
		return err
	}
	if len(r.Workload.Section.Files()) > 0 && filepath.Clean(r.WorkloadDir) != filepath.Dir(o.outPath) {
		r.Files = slices.DeleteFunc(r.Files, func(f formats.Input) bool { return f.Role == "workload" })
		return nil
	}
	return o.replaceFile(r, s, "workload", r.Workload)
}

// useRates puts the rates of the report into the workload.
func useRates(r *inputs.Reader, s *servedRun) ([]string, error) {
	if s.report == nil {
		return nil, nil
	}
	workload, lines, err := planner.WithTraffic(r.Workload, &kind.Traffic{Running: s.plan, Report: s.report})
	if e, ok := errors.AsType[*document.Error](err); ok && e.File == "" {
		e.File = s.reportPath
	}
	if err != nil {
		return nil, withCode(exitUsage, err)
	}
	r.Workload = workload
	for i := range lines {
		lines[i] = "rates: " + lines[i]
	}
	return lines, nil
}

// servedInputs reads the documents of a plan that was served, with what was measured in place of what was profiled and
// asked for. The lines that it returns are assumptions of the new plan.
func (o *solveOptions) servedInputs(r *inputs.Reader) (in planner.Inputs, assumptions []string, err error) {
	s, err := o.readServed()
	if err != nil {
		return in, nil, err
	}
	path, err := inputs.FindFile("profile", s.pathOf("profile", o.profile, o.runningPlan))
	if err == nil && path == "" {
		err = usageErrorf("no profile here, and %s names none that is there; give it with --profile", o.runningPlan)
	}
	if err == nil {
		err = r.ReadProfile(path)
	}
	if err == nil {
		err = r.AddFile("running", o.runningPlan)
	}
	if err != nil {
		return in, nil, err
	}
	cluster, err := o.readServedCluster(r, s)
	if err != nil {
		return in, nil, err
	}
	workload, err := o.readServedWorkload(r, s)
	if err != nil {
		return in, nil, err
	}
	r.RunningPlan = s.plan
	measured, err := o.useServed(r, s)
	o.served = s
	return r.Documents, slices.Concat(cluster, workload, measured, r.Unnamed), err
}

// readServedCluster reads the cluster that a flag or the served plan names, else takes that in the plan.
func (o *solveOptions) readServedCluster(r *inputs.Reader, s *servedRun) ([]string, error) {
	if path := s.pathOf("cluster", o.cluster, o.runningPlan); path != "" {
		return nil, r.ReadCluster(path)
	}
	r.Cluster = check.ClusterOf(s.plan)
	return []string{"cluster: as in " + o.runningPlan}, nil
}

// readServedWorkload reads the workload that a flag or the served plan names, else takes what the plan states that it was
// asked for.
func (o *solveOptions) readServedWorkload(r *inputs.Reader, s *servedRun) ([]string, error) {
	if path := s.pathOf("workload", o.workload, o.runningPlan); path != "" {
		return nil, r.ReadWorkload(path)
	}
	if r.Workload = planner.WorkloadToReplan(s.plan); r.Workload == nil {
		return nil, usageErrorf("%s names no workload that is there, and does not tell what it was asked for; give it with --workload", o.runningPlan)
	}
	return []string{"workload: as " + o.runningPlan + " was asked for"}, nil
}

// saveFiles writes the changed documents, if there are any.
func (s *servedRun) saveFiles(p *printer) error {
	if s == nil {
		return nil
	}
	for _, f := range s.changedFiles {
		if _, err := document.WriteBytes(f.path, f.text, document.Force(true)); err != nil {
			return err
		}
		p.PrintNote("wrote %s, the %s with what was measured", f.path, f.role)
	}
	return nil
}

// takeOptions sets the planner's options that were not chosen on the command line, in the environment or in the
// configuration file to those of the served plan. It returns an assumption that says so.
func (o *solveOptions) takeOptions(opt *planner.Options, s *servedRun) string {
	served, free := planner.OptionsToReplan(s.plan)
	for name, value := range served.Values {
		if f := o.choices.flagNamed(name); f == nil || !f.isSet {
			opt.Set(name, value)
		}
	}
	if !o.seedTyped {
		opt.Seed, opt.TestSettings.Seed = served.Seed, *served.Seed
	}
	text := "options: as those of " + o.runningPlan
	if len(free) > 0 {
		text += "; simulation chooses anew " + joinList(free)
	}
	return text
}
