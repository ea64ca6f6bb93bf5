package kubernetes

import (
	"fmt"
	"slices"
	"strings"

	"inferplan/formats/document"
	"inferplan/formats/triton"
	"inferplan/formats/usage"
	tritonimporter "inferplan/importers/triton"
)

// tritonReader reads the pods of Triton.
type tritonReader struct {
	devices      deviceReader
	repositories repositories
	notes        []string
}

// repositories are folders with the model repositories of workloads, by name; that of "" is the repository of all others.
type repositories map[string]string

// parseRepositories reads flags DIR or NAME=DIR.
func parseRepositories(list []string) (repositories, error) {
	out := repositories{}
	for _, text := range list {
		name, dir, named := strings.Cut(text, "=")
		if !named {
			name, dir = "", text
		}
		if _, twice := out[name]; twice || dir == "" {
			return nil, usage.Errorf("--repository: found %q, expected DIR, or NAME=DIR for the object NAME, each once", text)
		}
		out[name] = dir
	}
	return out, nil
}

// checkUse returns an error for a repository of an object that does not run Triton.
func (r repositories) checkUse(workloads []*workload) error {
	for _, name := range sortedKeys(r) {
		if name != "" && !slices.ContainsFunc(workloads, func(w *workload) bool { return w.name == name }) {
			names := document.Map(workloads, func(w **workload) string { return (*w).name })
			return usage.Errorf("--repository: found %q, expected the name of an object that runs Triton: %s", name, document.List(names))
		}
	}
	return nil
}

// servers returns the servers of Triton in the pods of workloads. Pods get the devices of the cluster in the order of
// the files.
func (t *tritonReader) servers(workloads []*workload) (list []tritonimporter.Server, err error) {
	remaining := t.devices.free()
	for _, w := range workloads {
		if w.count == 0 {
			t.notes = append(t.notes, w.String()+" has no pods")
			continue
		}
		models, err := t.modelsOf(w)
		if err != nil {
			return nil, err
		}
		devices, err := t.devices.devicesOf(w)
		if err != nil {
			return nil, err
		}
		hosts, err := remaining.takePods(w, devices)
		if err != nil {
			return nil, err
		}
		for _, host := range hosts {
			list = append(list, tritonimporter.Server{Host: host, Models: models, Group: w.namespace + "/" + w.String()})
		}
	}
	return list, nil
}

// orOf returns the value or, if it is absent, another one, which has a place.
func (v value) orOf(other value) value {
	if v.exists() {
		return v
	}
	return other
}

// modelsOf returns the models that the pods of a workload load.
func (t *tritonReader) modelsOf(w *workload) ([]triton.Model, error) {
	paths := append(optionsOf(w.words, "--model-repository"), optionsOf(w.words, "--model-store")...)
	if len(paths) != 1 {
		return nil, w.container.fail(fmt.Sprintf("%d model repositories of %s", len(paths), w), "one --model-repository", "")
	}
	dir, ok := t.repositories[w.name]
	if !ok {
		dir, ok = t.repositories[""]
	}
	if !ok {
		return nil, w.container.fail("the model repository "+paths[0]+" of "+w.String()+", which is not in the manifests", "a copy of it here", fmt.Sprintf("name its folder: --repository DIR, or --repository %s=DIR", w.name))
	}
	found, err := triton.ReadRepositories(dir)
	if err != nil {
		return nil, err
	}
	if len(found) != 1 || found[0].Host != "" {
		return nil, &document.Error{File: dir, Found: "repositories in folders", Expected: "the model repository of " + w.String()}
	}
	return t.loadedModels(w, dir, found[0].Models)
}

// loadedModels returns those of the models of a repository that a server loads: in the mode explicit those that are
// named, with the steps of ensembles, else all (triton-inference-server/server 2.60, docs/user_guide/model_management.md).
func (t *tritonReader) loadedModels(w *workload, dir string, models []triton.Model) ([]triton.Model, error) {
	names := optionsOf(w.words, "--load-model")
	if !slices.Contains(optionsOf(w.words, "--model-control-mode"), "explicit") || slices.Contains(names, "*") {
		return models, nil
	}
	if len(names) == 0 {
		t.notes = append(t.notes, fmt.Sprintf("%s: models are loaded by clients, which manifests do not say: planned with all of %s", w, dir))
		return models, nil
	}
	for i := 0; i < len(names); i++ { // steps are appended
		m := document.First(models, func(m *triton.Model) bool { return m.Config.Name == names[i] })
		if m == nil {
			return nil, w.container.fail("the model "+document.Quote(names[i])+", which "+w.String()+" loads", "a model of "+dir, "")
		}
		for _, s := range m.Config.GetEnsembleScheduling().GetStep() {
			if !slices.Contains(names, s.ModelName) {
				names = append(names, s.ModelName)
			}
		}
	}
	return slices.DeleteFunc(models, func(m triton.Model) bool { return !slices.Contains(names, m.Config.Name) }), nil
}
