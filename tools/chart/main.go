// Reads Kubernetes manifests from its input, and decodes each strictly by the types of the API: a field that there is
// not, or of another type, is an error. Prints kind and name of each.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	strict := json.NewSerializerWithOptions(
		json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Yaml: true, Strict: true})
	documents := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	count := 0
	for {
		text, err := documents.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			fail(err)
		}
		if len(text) == 0 || isComment(text) {
			continue
		}
		object, kind, err := strict.Decode(text, nil, nil)
		if err != nil {
			fail(fmt.Errorf("%w in:\n%s", err, text))
		}
		named, err := meta.Accessor(object)
		if err != nil {
			fail(err)
		}
		fmt.Printf("%s %s\n", kind.Kind, named.GetName())
		count++
	}
	if count == 0 {
		fail(fmt.Errorf("there is no manifest"))
	}
}

// Returns whether a document has nothing but comments and empty lines.
func isComment(text []byte) bool {
	inComment := false
	for _, one := range text {
		switch {
		case one == '\n':
			inComment = false
		case one == '#':
			inComment = true
		case !inComment && one != ' ' && one != '-':
			return false
		}
	}
	return true
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
