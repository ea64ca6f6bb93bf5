package kubernetes

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"inferplan/formats"
	"inferplan/formats/csvfile"
	"inferplan/formats/document"
	"inferplan/importers"
)

// object is an object of Kubernetes.
type object struct {
	value
	group                 string // of its API; empty for the core
	kind, namespace, name string
}

// groupOf returns the group of an apiVersion, such as apps of apps/v1, or "" for the core's v1.
func groupOf(apiVersion string) string {
	group, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		return ""
	}
	return group
}

// qualified returns a kind as kubectl tells it from those of the same name: Deployment.apps.
func qualified(kind, group string) string { return strings.TrimSuffix(kind+"."+group, ".") }

// String returns the object as kubectl calls it.
func (o *object) String() string { return strings.ToLower(o.kind) + "/" + o.name }

// podKind is a kind of objects that have pods.
type podKind struct {
	group    string
	kind     string
	spec     string // path of the specification of a pod
	replicas string // path of their number; empty if it is one
	required bool   // the number has no default
}

// appsGroup is the group of the kinds that keep pods running.
const appsGroup = "apps"

// podKinds are the kinds of which pods are read. Replicas are one by default.
var podKinds = []podKind{
	{group: appsGroup, kind: "Deployment", spec: "spec.template.spec", replicas: "spec.replicas"},
	{group: appsGroup, kind: "StatefulSet", spec: "spec.template.spec", replicas: "spec.replicas"},
	{group: appsGroup, kind: "ReplicaSet", spec: "spec.template.spec", replicas: "spec.replicas"},
	{group: appsGroup, kind: "DaemonSet", spec: "spec.template.spec", replicas: "status.desiredNumberScheduled", required: true},
	{kind: "Pod", spec: "spec"},
	{group: "serving.kserve.io", kind: "InferenceService", spec: "spec.predictor", replicas: "spec.predictor.minReplicas"},
}

// cluster has the objects of files of manifests.
type cluster struct {
	objects []*object
	plans   []plan // documents among the files
	notes   []string
}

// plan is the text of a plan's document.
type plan struct{ name, text string }

// maxFile is the most bytes of a file that are read.
const maxFile = 64 << 20

// readFiles reads files, folders and standard input.
func readFiles(args []string) (*cluster, error) {
	paths, err := importers.FilesOf(args, ".yaml", ".yml", ".json")
	if err != nil {
		return nil, err
	}
	c := &cluster{}
	for _, path := range paths {
		f, err := csvfile.Open(path)
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", f.Name, err)
		}
		if len(text) > maxFile {
			return nil, &document.Error{File: f.Name, Found: "more than " + document.Bytes(maxFile).String(), Expected: "manifests of Kubernetes", Hint: "select the objects: kubectl get -n NAMESPACE -l LABEL=VALUE"}
		}
		if err := c.read(f.Name, string(text)); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// read adds the objects of a text.
func (c *cluster) read(name, text string) error {
	src := &source{file: name}
	documents, err := parseYAML(src, strings.TrimPrefix(text, "\ufeff"))
	if err != nil {
		return err
	}
	for _, d := range documents {
		if d.node.Kind == yaml.MappingNode && d.field("format").exists() && !d.field("apiVersion").exists() {
			c.addDocument(d, text)
			continue
		}
		if err := c.addManifest(d, false); err != nil {
			return err
		}
	}
	return src.err
}

// addDocument adds a document of ours if it is a plan.
func (c *cluster) addDocument(d value, text string) {
	if format := d.field("format").text(); strings.HasPrefix(format, "inferplan."+formats.KindPlan+"/") {
		c.plans = append(c.plans, plan{d.file, text})
	} else if !strings.HasPrefix(format, "inferplan.") {
		d.fail("an object without apiVersion", "a manifest of Kubernetes", "")
	}
}

// addManifest adds an object, or the objects of a list.
func (c *cluster) addManifest(d value, inList bool) error {
	o := &object{d, groupOf(d.field("apiVersion").text()), d.field("kind").text(), d.field("metadata.namespace").text(), d.field("metadata.name").text()}
	if o.err != nil {
		return o.err
	}
	switch {
	case o.kind == "" || d.field("apiVersion").text() == "":
		return d.fail("an object without apiVersion and kind", "a manifest of Kubernetes", "give files with manifests alone, or what kubectl get -o yaml prints")
	case o.kind == "List" && inList:
		return d.fail("a List in a List", "objects", "")
	case o.kind == "List":
		for _, item := range d.field("items").items() {
			if !item.exists() {
				return item.fail("nothing", "an object", "")
			}
			if err := c.addManifest(item, true); err != nil {
				return err
			}
		}
		return d.err
	case o.kind == "Kustomization":
		return c.noteChanges(d)
	case strings.HasPrefix(d.field("apiVersion").text(), "kustomize.config.k8s.io/"):
		return d.err // a component changes nothing that is read
	case o.name == "":
		return d.field("metadata.name").fail("nothing", "the name of the "+o.kind, "")
	}
	if other := c.find(o.group, o.kind, o.namespace, o.name); other != nil {
		return d.fail(o.String()+", which is also in "+other.file, "each object once", "give either the manifests or what kubectl prints")
	}
	c.objects = append(c.objects, o)
	return d.err
}

// noteChanges notes what a kustomization changes, which is not read.
func (c *cluster) noteChanges(d value) error {
	for _, name := range []string{"patches", "patchesStrategicMerge", "patchesJson6902", "replicas"} {
		if f := d.field(name); f.exists() {
			c.notes = append(c.notes, fmt.Sprintf("%s: its %s are not applied: give what kubectl kustomize prints to have them", d.file, name))
		}
	}
	return d.err
}

// find returns the object of a group, kind and name, or nil.
func (c *cluster) find(group, kind, namespace, name string) *object {
	i := slices.IndexFunc(c.objects, func(o *object) bool {
		return o.group == group && o.kind == kind && o.namespace == namespace && o.name == name
	})
	if i < 0 {
		return nil
	}
	return c.objects[i]
}

// workload is an object with pods that run a model server.
type workload struct {
	*object
	pods      value // their specification
	replicas  value
	count     int // of pods
	container value
	command
}

// workloads returns the objects with pods of model servers, in the order of the files. Those whose controller is among
// the objects, and those that have ended, are left out.
func (c *cluster) workloads() (list []*workload, err error) {
	for _, o := range c.objects {
		kind := o.podKind()
		if kind == nil {
			if err := o.checkUnreadKind(); err != nil {
				return nil, err
			}
			continue
		}
		if !o.hasContainers() {
			c.notes = append(c.notes, o.String()+" does not say its containers: what it runs is read of the objects that it makes, if they are among the files")
			continue
		}
		if phase := o.field("status.phase").text(); c.hasController(o) || phase == "Succeeded" || phase == "Failed" {
			continue
		}
		w := &workload{object: o, pods: o.field(kind.spec), count: 1}
		if !w.setContainer() {
			if o.err != nil {
				return nil, o.err
			}
			continue
		}
		if kind.replicas != "" {
			w.replicas = o.field(kind.replicas)
			w.count = w.replicas.count(1)
			if kind.required && !w.replicas.exists() {
				w.replicas.fail("nothing", "the number of pods of the "+o.kind, "give what kubectl get -o yaml prints")
			}
		}
		if o.err != nil {
			return nil, o.err
		}
		if w.laterStarts > 0 {
			c.notes = append(c.notes, w.String()+": "+w.placesText())
		}
		c.noteReady(w)
		list = append(list, w)
	}
	return list, nil
}

// placesText says that the script of a container starts several servers.
func (w *workload) placesText() string {
	return fmt.Sprintf("its script starts a model server at %d places: the first is read", w.laterStarts+1)
}

// podKind returns how pods of the object are read, or nil if they are not.
func (o *object) podKind() *podKind {
	return document.First(podKinds, func(k *podKind) bool { return k.kind == o.kind && k.group == o.group })
}

// hasContainers reports whether the object says which containers its pods have.
func (o *object) hasContainers() bool {
	kind := o.podKind()
	return kind != nil && o.field(kind.spec+".containers").exists()
}

// hasController reports whether the object that made this one is among the objects, and says its containers. ReplicaSets
// between a Deployment and its pods need not be among them.
func (c *cluster) hasController(o *object) bool {
	for _, owner := range o.field("metadata.ownerReferences").items() {
		group, kind, name := groupOf(owner.field("apiVersion").text()), owner.field("kind").text(), owner.field("name").text()
		if maker := c.find(group, kind, o.namespace, name); maker != nil && maker.hasContainers() {
			return true
		}
		if i := strings.LastIndexByte(name, '-'); group == appsGroup && kind == "ReplicaSet" && i > 0 && c.find(appsGroup, "Deployment", o.namespace, name[:i]) != nil {
			return true
		}
	}
	return false
}

// setContainer sets the container that runs a model server, or returns false if there is none. Two are an error.
func (w *workload) setContainer() bool {
	for _, container := range w.pods.field("containers").items() {
		c, err := containerCommand(container)
		wrong, isWrong := errors.AsType[*document.Error](err)
		switch {
		case c.engine == nil:
		case isWrong:
			container.field("args").orOf(container.field("command")).fail(wrong.Found, wrong.Expected, wrong.Hint)
		case w.engine != nil:
			container.fail(c.engine.name+" beside "+w.engine.name, "one model server in a pod", "")
		default:
			w.container, w.command = container, c
		}
	}
	return w.engine != nil
}

// noteReady notes pods that are not ready where the cluster says so.
func (c *cluster) noteReady(w *workload) {
	status := w.field("status")
	if w.replicas.exists() && status.field("replicas").exists() {
		if ready := status.field("readyReplicas").count(0); ready < w.count {
			c.notes = append(c.notes, fmt.Sprintf("%s: %d of %d pods are ready; planned with all", w, ready, w.count))
		}
	}
}

// checkUnreadKind returns an error if an object of a kind that is not read has a container of a model server.
func (o *object) checkUnreadKind() error {
	e := engineBelow(o.node)
	if e == nil {
		return o.err
	}
	kinds := document.Map(podKinds, func(k *podKind) string { return qualified(k.kind, k.group) })
	return o.fail(strings.ToLower(qualified(o.kind, o.group))+"/"+o.name+", which runs "+e.name, "objects of the kinds "+document.List(kinds), "leave it out of the files, or give its pods: kubectl get pods -o yaml")
}

// engineBelow returns the model server of a container anywhere in a value, or nil.
func engineBelow(n *yaml.Node) *engine {
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].Value == "image" && child.Kind == yaml.ScalarNode {
			if e := engineOf(child.Value, nil); e != nil {
				return e
			}
		}
		if e := engineBelow(child); e != nil {
			return e
		}
	}
	return nil
}
