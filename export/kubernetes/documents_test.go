package kubernetes

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"inferplan/engine/worker"
)

// manifest is a document of a file, decoded into its type, or into any for kinds that have a schema.
type manifest struct {
	file, text string
	value      any
}

// header holds the fields that all manifests have.
type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
}

// kustomization has the fields of a Kustomization or Component that are used here.
type kustomization struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Namespace  string   `json:"namespace,omitempty"`
	Resources  []string `json:"resources"`
	Components []string `json:"components,omitempty"`
	Images     []struct {
		Name    string `json:"name"`
		NewName string `json:"newName"`
		NewTag  string `json:"newTag,omitempty"`
		Digest  string `json:"digest,omitempty"`
	} `json:"images,omitempty"`
	ConfigMapGenerator []struct {
		Name    string   `json:"name"`
		Files   []string `json:"files"`
		Options struct {
			DisableNameSuffixHash bool              `json:"disableNameSuffixHash"`
			Labels                map[string]string `json:"labels"`
		} `json:"options"`
	} `json:"configMapGenerator,omitempty"`
	Patches []struct {
		Target struct {
			Group   string `json:"group"`
			Version string `json:"version"`
			Kind    string `json:"kind"`
		} `json:"target"`
		Patch string `json:"patch"`
	} `json:"patches,omitempty"`
}

// types makes a value of the Go type of a kind.
var types = map[string]func() any{
	"v1/Service":                                    func() any { return new(corev1.Service) },
	"v1/Secret":                                     func() any { return new(corev1.Secret) },
	"v1/ConfigMap":                                  func() any { return new(corev1.ConfigMap) },
	"apps/v1/StatefulSet":                           func() any { return new(appsv1.StatefulSet) },
	"apps/v1/Deployment":                            func() any { return new(appsv1.Deployment) },
	"policy/v1/PodDisruptionBudget":                 func() any { return new(policyv1.PodDisruptionBudget) },
	"networking.k8s.io/v1/NetworkPolicy":            func() any { return new(networkingv1.NetworkPolicy) },
	"kustomize.config.k8s.io/v1beta1/Kustomization": func() any { return new(kustomization) },
	"kustomize.config.k8s.io/v1alpha1/Component":    func() any { return new(kustomization) },
}

// schemas has the published schemas of custom resources, and the version that is written.
var schemas = map[string]string{
	"keda.sh/v1alpha1/ScaledObject":              "keda.sh_scaledobjects",
	"monitoring.coreos.com/v1/PodMonitor":        "monitoring.coreos.com_podmonitors",
	"serving.kserve.io/v1beta1/InferenceService": "serving.kserve.io_inferenceservices",
}

// decode decodes a text of documents strictly. Custom resources are held against their schemas.
func decode(t testing.TB, file, text string) (list []manifest) {
	t.Helper()
	for _, part := range strings.Split(text, "\n---\n") {
		var h header
		if err := yaml.Unmarshal([]byte(part), &h); err != nil {
			t.Fatalf("%s: %v\n%s", file, err, part)
		}
		kind := h.APIVersion + "/" + h.Kind
		m := manifest{file, part, nil}
		switch {
		case types[kind] != nil:
			m.value = types[kind]()
		case schemas[kind] != "":
			checkSchema(t, kind, part)
			m.value = newCustom(kind)
		default:
			t.Fatalf("%s: kind %q", file, kind)
		}
		unmarshal := yaml.UnmarshalStrict
		if schemas[kind] != "" {
			unmarshal = yaml.Unmarshal // the schema is strict
		}
		if err := unmarshal([]byte(part), m.value); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		list = append(list, m)
	}
	return list
}

// documents decodes all YAML files of a folder.
func documents(t testing.TB, dir string) (list []manifest) {
	t.Helper()
	for _, pattern := range []string{"*/*.yaml", "*/*/*.yaml"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, decode(t, strings.TrimPrefix(path, dir+"/"), string(data))...)
		}
	}
	return list
}

// The parts of custom resources that refer to others.
type (
	podMonitor struct {
		Spec struct {
			Selector struct {
				MatchLabels map[string]string `json:"matchLabels"`
			} `json:"selector"`
			Endpoints []struct {
				Port          string `json:"port"`
				Authorization struct {
					Credentials corev1.SecretKeySelector `json:"credentials"`
				} `json:"authorization"`
			} `json:"podMetricsEndpoints"`
		} `json:"spec"`
	}
	scaledObject struct {
		Spec struct {
			Target   struct{ Kind, Name string } `json:"scaleTargetRef"`
			Min      int                         `json:"minReplicaCount"`
			Max      int                         `json:"maxReplicaCount"`
			Triggers []struct {
				Metadata map[string]string `json:"metadata"`
			} `json:"triggers"`
		} `json:"spec"`
	}
	inferenceService struct {
		header
		Spec struct {
			Predictor struct {
				corev1.PodSpec
				Labels map[string]string `json:"labels"`
			} `json:"predictor"`
		} `json:"spec"`
	}
)

// newCustom returns a value for the parts of a custom resource that refer to others.
func newCustom(kind string) any {
	switch filepath.Base(kind) {
	case "PodMonitor":
		return new(podMonitor)
	case "ScaledObject":
		return new(scaledObject)
	}
	return new(inferenceService)
}

// checkSchema holds a custom resource against its published schema, in which no object has fields but those that it names.
func checkSchema(t testing.TB, kind, text string) {
	t.Helper()
	value, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		t.Fatal(err)
	}
	if err := schemaOf(t, kind).Validate(decoded); err != nil {
		t.Errorf("%s: %v\n%s", kind, err, text)
	}
}

var compiled = map[string]*jsonschema.Schema{}

// schemaOf returns the schema of the version of a custom resource that is written.
func schemaOf(t testing.TB, kind string) *jsonschema.Schema {
	t.Helper()
	if compiled[kind] != nil {
		return compiled[kind]
	}
	f, err := os.Open("../../third_party/crds/" + schemas[kind] + ".yaml.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	var definition struct {
		Spec struct {
			Versions []struct {
				Name   string `json:"name"`
				Schema struct {
					OpenAPI map[string]any `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &definition); err != nil {
		t.Fatal(err)
	}
	for _, v := range definition.Spec.Versions {
		if !strings.Contains(kind, "/"+v.Name+"/") {
			continue
		}
		// The API server fills metadata, whose fields no schema of a custom resource names.
		closeObjects(v.Schema.OpenAPI)
		v.Schema.OpenAPI["properties"].(map[string]any)["metadata"] = true
		c := jsonschema.NewCompiler()
		if err := c.AddResource(schemas[kind], v.Schema.OpenAPI); err != nil {
			t.Fatal(err)
		}
		if compiled[kind], err = c.Compile(schemas[kind]); err != nil {
			t.Fatal(err)
		}
		return compiled[kind]
	}
	t.Fatalf("no schema of %s", kind)
	return nil
}

// closeObjects forbids fields that a schema does not name, wherever it names some.
func closeObjects(schema any) {
	switch s := schema.(type) {
	case map[string]any:
		if _, named := s["properties"].(map[string]any); named && s["x-kubernetes-preserve-unknown-fields"] != true && s["type"] == "object" {
			s["additionalProperties"] = false
		}
		delete(s, "format") // int32 and others are none of JSON Schema's
		for _, v := range s {
			closeObjects(v)
		}
	case []any:
		for _, v := range s {
			closeObjects(v)
		}
	}
}

// pod is a pod that a manifest makes.
type pod struct {
	owner  string
	labels map[string]string
	spec   *corev1.PodSpec
}

// cluster is what the manifests of a folder make, with what refers to what.
type cluster struct {
	t       testing.TB
	pods    []pod
	secrets map[string][]string // names of keys
	list    []manifest
}

func newCluster(t testing.TB, dir string) *cluster {
	c := &cluster{t: t, secrets: map[string][]string{}, list: documents(t, dir)}
	for _, m := range c.list {
		switch v := m.value.(type) {
		case *appsv1.StatefulSet:
			c.pods = append(c.pods, pod{v.Name, v.Spec.Template.Labels, &v.Spec.Template.Spec})
		case *appsv1.Deployment:
			c.pods = append(c.pods, pod{v.Name, v.Spec.Template.Labels, &v.Spec.Template.Spec})
		case *inferenceService:
			c.pods = append(c.pods, pod{v.Metadata.Name, v.Spec.Predictor.Labels, &v.Spec.Predictor.PodSpec})
		}
	}
	script, err := os.ReadFile(filepath.Join(dir, "secrets.sh"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range hereDocument.FindAllStringSubmatch(string(script), -1) {
		text := strings.TrimPrefix(encoded.ReplaceAllString(part[1], "eA=="), "---\n")
		s := decode(t, "secrets.sh", strings.TrimSpace(text))[0].value.(*corev1.Secret)
		c.secrets[s.Name] = slices.Sorted(maps.Keys(s.Data))
	}
	return c
}

// The parts of secrets.sh: what it writes, and the values in it.
var (
	hereDocument = regexp.MustCompile(`(?s)cat <<END\n(.*?)\nEND`)
	encoded      = regexp.MustCompile(`\$\(encode [-a-z.]+\)`)
)

// runSecrets runs the script that makes secrets.
func runSecrets(t testing.TB, dir string) (list []*corev1.Secret) {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("secrets.sh needs openssl")
	}
	out, err := exec.Command(filepath.Join(dir, "secrets.sh")).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range decode(t, "secrets.sh", strings.TrimSpace(string(out))) {
		list = append(list, m.value.(*corev1.Secret))
	}
	return list
}

// podsOf returns the pods with labels, of which there must be some.
func (c *cluster) podsOf(by string, labels map[string]string) (list []pod) {
	for _, p := range c.pods {
		if len(labels) > 0 && !slices.ContainsFunc(slices.Collect(maps.Keys(labels)), func(k string) bool { return p.labels[k] != labels[k] }) {
			list = append(list, p)
		}
	}
	if list == nil {
		c.t.Errorf("%s selects no pod: %v", by, labels)
	}
	return list
}

// checkPort fails unless all pods have a port of this name.
func (c *cluster) checkPort(by, name string, pods []pod) {
	for _, p := range pods {
		if !slices.ContainsFunc(p.spec.Containers[0].Ports, func(q corev1.ContainerPort) bool { return q.Name == name }) {
			c.t.Errorf("%s: pods of %s have no port %q", by, p.owner, name)
		}
	}
}

// checkKey fails unless a secret has a key.
func (c *cluster) checkKey(by, secret, key string) {
	if !slices.Contains(c.secrets[secret], key) {
		c.t.Errorf("%s: secret %s has the keys %v, not %s", by, secret, c.secrets[secret], key)
	}
}

// check checks everything.
func (c *cluster) check() {
	c.checkObjects()
	c.checkPods()
	c.checkEnds()
}

// checkMembers checks a Service of servers of language models: it is headless, has the name that its pods' label has, and the server watches
// it. The pods themselves are not exported.
func (c *cluster) checkMembers(by string, s *corev1.Service) {
	watched := fmt.Sprintf("--server=dns+http://%s:%d", s.Name, s.Spec.Ports[0].Port)
	isWatched := slices.ContainsFunc(c.list, func(m manifest) bool {
		set, ok := m.value.(*appsv1.StatefulSet)
		return ok && slices.Contains(set.Spec.Template.Spec.Containers[0].Args, watched)
	})
	if !isWatched || s.Spec.ClusterIP != corev1.ClusterIPNone || s.Spec.PublishNotReadyAddresses || s.Spec.Selector["inferplan/servers"] != s.Name || s.Spec.Ports[0].TargetPort.IntVal != s.Spec.Ports[0].Port {
		c.t.Errorf("%s: %+v, expected a headless Service that an argument %s of the server names", by, s.Spec, watched)
	}
}

// checkObjects checks what objects other than pods refer to.
func (c *cluster) checkObjects() {
	for _, m := range c.list {
		by := m.file
		switch v := m.value.(type) {
		case *corev1.Service:
			if name := v.Spec.Selector["inferplan/servers"]; name != "" {
				c.checkMembers(by, v)
				continue
			}
			pods := c.podsOf(by, v.Spec.Selector)
			for _, p := range v.Spec.Ports {
				c.checkPort(by, p.TargetPort.StrVal, pods)
			}
		case *appsv1.StatefulSet:
			for _, p := range c.podsOf(by, v.Spec.Selector.MatchLabels) {
				if p.owner != v.Name {
					c.t.Errorf("%s: %s selects pods of %s", by, v.Name, p.owner)
				}
			}
			if !slices.ContainsFunc(c.list, func(m manifest) bool {
				s, ok := m.value.(*corev1.Service)
				return ok && s.Name == v.Spec.ServiceName && s.Spec.ClusterIP == corev1.ClusterIPNone
			}) {
				c.t.Errorf("%s: %s names no headless service", by, v.Name)
			}
		case *appsv1.Deployment:
			if pods := c.podsOf(by, v.Spec.Selector.MatchLabels); len(pods) != 1 || pods[0].owner != v.Name {
				c.t.Errorf("%s: %s selects %d owners", by, v.Name, len(pods))
			}
		case *policyv1.PodDisruptionBudget:
			c.podsOf(by, v.Spec.Selector.MatchLabels)
		case *networkingv1.NetworkPolicy:
			pods := c.podsOf(by, v.Spec.PodSelector.MatchLabels)
			for _, rule := range v.Spec.Ingress {
				for _, from := range rule.From {
					c.podsOf(by, from.PodSelector.MatchLabels)
				}
				for _, p := range rule.Ports {
					c.checkPort(by, p.Port.StrVal, pods)
				}
			}
		case *podMonitor:
			pods := c.podsOf(by, v.Spec.Selector.MatchLabels)
			for _, e := range v.Spec.Endpoints {
				c.checkPort(by, e.Port, pods)
				if s := e.Authorization.Credentials; s.Name != "" {
					c.checkKey(by, s.Name, s.Key)
				}
			}
		}
	}
}

// checkPods checks that pods run without rights, ask for what they need, and refer to what there is.
func (c *cluster) checkPods() {
	for _, p := range c.pods {
		s, x := p.spec.SecurityContext, p.spec.Containers[0]
		if s == nil || !*s.RunAsNonRoot || *s.RunAsUser == 0 || s.SeccompProfile == nil || *p.spec.AutomountServiceAccountToken {
			c.t.Errorf("%s: pods may be root", p.owner)
		}
		if !*x.SecurityContext.ReadOnlyRootFilesystem || *x.SecurityContext.AllowPrivilegeEscalation || !slices.Equal(x.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			c.t.Errorf("%s: the container has rights", p.owner)
		}
		if x.Resources.Requests.Cpu().IsZero() || x.Resources.Requests.Memory().IsZero() || x.Resources.Limits.Memory().Cmp(*x.Resources.Requests.Memory()) != 0 {
			c.t.Errorf("%s: resources %v", p.owner, x.Resources)
		}
		for _, probe := range []*corev1.Probe{x.StartupProbe, x.ReadinessProbe, x.LivenessProbe} {
			if probe == nil {
				continue
			}
			port := 0
			if probe.HTTPGet != nil {
				port = probe.HTTPGet.Port.IntValue()
			} else {
				port = probe.TCPSocket.Port.IntValue()
			}
			if !slices.ContainsFunc(x.Ports, func(q corev1.ContainerPort) bool { return int(q.ContainerPort) == port }) {
				c.t.Errorf("%s: a probe asks port %d", p.owner, port)
			}
		}
		for _, e := range x.Env {
			c.checkKey(p.owner, e.ValueFrom.SecretKeyRef.Name, e.ValueFrom.SecretKeyRef.Key)
		}
		c.checkVolumes(p)
		c.checkJoin(p)
	}
}

// joins matches the server that a worker joins: a StatefulSet, the number of its pod, a Service and a port.
var joins = regexp.MustCompile(`--join "([-a-z0-9]+)-(0|\$\(\(\$\{HOSTNAME##\*-\} / \d+\)\))\.([-a-z0-9]+):(\d+)"`)

// checkJoin checks that workers join pods that there are, at a port that the Service has for it.
func (c *cluster) checkJoin(p pod) {
	args := strings.Join(p.spec.Containers[0].Args, " ")
	if !strings.Contains(args, "plan worker") {
		return
	}
	m := joins.FindStringSubmatch(args)
	if m == nil {
		c.t.Errorf("%s: joins nothing: %s", p.owner, args)
		return
	}
	if !slices.ContainsFunc(c.list, func(d manifest) bool {
		s, ok := d.value.(*corev1.Service)
		return ok && s.Name == m[3] && s.Spec.PublishNotReadyAddresses && strconv.Itoa(int(s.Spec.Ports[0].Port)) == m[4] &&
			c.podsOf(p.owner, s.Spec.Selector)[0].owner == m[1]
	}) {
		c.t.Errorf("%s: joins %v, which no Service is for", p.owner, m[1:])
	}
}

// mounted matches paths of mounted files in arguments.
var mounted = regexp.MustCompile(`/(etc|var)/[-a-zA-Z0-9/.]+`)

// checkVolumes checks that mounts have volumes, volumes have what they name, and files in arguments are mounted.
func (c *cluster) checkVolumes(p pod) {
	x := p.spec.Containers[0]
	files := map[string]bool{}
	for _, mount := range x.VolumeMounts {
		i := slices.IndexFunc(p.spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		if i < 0 {
			if files[mount.MountPath+"/requests.db"] = true; mount.Name != "requests" {
				c.t.Errorf("%s: no volume %s", p.owner, mount.Name)
			}
			continue
		}
		v := p.spec.Volumes[i]
		switch {
		case v.Secret != nil:
			if *v.Secret.DefaultMode != 0o440 {
				c.t.Errorf("%s: secret %s has mode %o", p.owner, v.Name, *v.Secret.DefaultMode)
			}
			for _, item := range v.Secret.Items {
				c.checkKey(p.owner, v.Secret.SecretName, item.Key)
				files[mount.MountPath+"/"+item.Path] = true
			}
		case v.ConfigMap != nil:
			if !slices.ContainsFunc(c.list, func(m manifest) bool {
				k, ok := m.value.(*kustomization)
				return ok && len(k.ConfigMapGenerator) == 1 && k.ConfigMapGenerator[0].Name == v.ConfigMap.Name && k.ConfigMapGenerator[0].Options.DisableNameSuffixHash
			}) {
				c.t.Errorf("%s: nothing makes config map %s", p.owner, v.ConfigMap.Name)
			}
			files[mount.MountPath+"/plan.json"] = true
		}
	}
	for _, path := range mounted.FindAllString(strings.Join(x.Args, " "), -1) {
		if !files[path] {
			c.t.Errorf("%s: %s is not mounted; there are %v", p.owner, path, slices.Sorted(maps.Keys(files)))
		}
	}
}

// seconds returns the time that an argument of the server gives, in seconds.
func seconds(t testing.TB, args []string, flag string) float64 {
	t.Helper()
	i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "--"+flag+"=") })
	if i < 0 {
		t.Fatalf("no --%s in %v", flag, args)
	}
	_, text, _ := strings.Cut(args[i], "=")
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d.Seconds()
}

// checkEnds checks that pods have the time to end that their servers drain in.
func (c *cluster) checkEnds() {
	drained := 0.0
	for _, p := range c.pods {
		if x := p.spec.Containers[0]; slices.Contains(x.Command, "serve") {
			delay := seconds(c.t, x.Args, "drain-delay")
			drained = delay + seconds(c.t, x.Args, "drain")
			if float64(*p.spec.TerminationGracePeriodSeconds) < drained+5 {
				c.t.Errorf("%s: has %d s to end, and drains for %g s", p.owner, *p.spec.TerminationGracePeriodSeconds, drained)
			}
			if probe := x.ReadinessProbe; float64(probe.PeriodSeconds*probe.FailureThreshold) > delay {
				c.t.Errorf("%s: is seen to be not ready after %d s, and takes requests for %g s", p.owner, probe.PeriodSeconds*probe.FailureThreshold, delay)
			}
		}
	}
	for _, p := range c.pods {
		x := p.spec.Containers[0]
		if x.Lifecycle == nil {
			continue
		}
		sleep, err := strconv.Atoi(x.Lifecycle.PreStop.Exec.Command[1])
		if err != nil || float64(sleep) < drained || *p.spec.TerminationGracePeriodSeconds <= int64(sleep) {
			c.t.Errorf("%s: works on for %d s of %d s, and its server drains for %g s", p.owner, sleep, *p.spec.TerminationGracePeriodSeconds, drained)
		}
	}
}

// All documents are of their published types and schemas, and refer to what there is.
func TestDocuments(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir, err := exported(t, newSource(t, compat+c.plan), c.flags...)
			if err != nil {
				t.Fatal(err)
			}
			newCluster(t, dir).check()
			checkBuilt(t, dir)
		})
	}
}

// checkBuilt builds the overlay with kubectl, where that is here, and decodes what comes out.
func checkBuilt(t *testing.T, dir string) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		return
	}
	out, err := exec.Command(kubectl, "kustomize", filepath.Join(dir, "overlay")).Output()
	if err != nil {
		t.Fatalf("kubectl kustomize: %v", err)
	}
	for _, m := range decode(t, "kustomize", string(out)) {
		var object struct {
			Metadata struct{ Name, Namespace string } `json:"metadata"`
		}
		if err := yaml.Unmarshal([]byte(m.text), &object); err != nil || object.Metadata.Namespace == "" {
			t.Errorf("%s has no namespace: %v", object.Metadata.Name, err)
		}
		if s, ok := m.value.(*appsv1.StatefulSet); ok && s.Spec.Template.Spec.Containers[0].Image == "inferplan" {
			t.Errorf("%s: the image was not set", s.Name)
		}
	}
}

// The certificate in the secret is the one whose pin workers get, and tokens are as the server and workers take them.
func TestSecrets(t *testing.T) {
	dir, err := exported(t, newSource(t, compat+cases[0].plan))
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]string{}
	for range 2 {
		for _, s := range runSecrets(t, dir) {
			for key, data := range s.Data {
				if before[s.Name+key] == string(data) {
					t.Errorf("%s of %s is the same again", key, s.Name)
				}
				before[s.Name+key] = string(data)
				path := filepath.Join(t.TempDir(), key)
				if err := os.WriteFile(path, data, 0o600); err != nil {
					t.Fatal(err)
				}
				switch key {
				case "token":
					if _, _, err := worker.Token(path); err != nil {
						t.Error(err)
					}
				case "join.pem":
					if _, pin, err := worker.Certificate(path); err != nil || pin != string(s.Data["pin"]) {
						t.Errorf("pin %s, and the secret has %s: %v", pin, s.Data["pin"], err)
					}
				}
			}
		}
	}
}

// Copies are added by the planned rates: all pods of a copy at once.
func TestScaling(t *testing.T) {
	dir, err := exported(t, newSource(t, compat+"plan-gear.v2.json"), "--copies", "2", "--max-copies", "5", "--scale-at", ".5", "--devices-per-pod", "cpu-1=1")
	if err != nil {
		t.Fatal(err)
	}
	rps := newSource(t, compat+"plan-gear.v2.json").Plan.ServedModels()[0].RPS
	pods := map[string]int{"inferplan-server": 1, "inferplan-cpu-1": 2}
	for _, m := range documents(t, dir) {
		s, ok := m.value.(*scaledObject)
		if !ok {
			continue
		}
		n := pods[s.Spec.Target.Name]
		if n == 0 || s.Spec.Target.Kind != "StatefulSet" || s.Spec.Min != 2*n || s.Spec.Max != 5*n || len(s.Spec.Triggers) != 1 {
			t.Fatalf("%+v", s)
		}
		delete(pods, s.Spec.Target.Name)
		query := s.Spec.Triggers[0].Metadata["query"]
		if want := fmt.Sprintf(" / %g)", rps/2); !strings.HasSuffix(query, want) || n > 1 && !strings.HasPrefix(query, fmt.Sprint(n, " * ceil(")) {
			t.Errorf("query %q, expected %d pods for each %s", query, n, want)
		}
	}
	if len(pods) > 0 {
		t.Errorf("not scaled: %v", pods)
	}
}
