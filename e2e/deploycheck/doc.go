// Package deploycheck tests the manifests of deploy/: that kustomize and Helm render the same objects, that the API's own
// types take them strictly, that they fit together and fit the programs, and that docs/privileges.md says all they ask for.
package deploycheck
