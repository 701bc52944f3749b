# Finds the libraries that tamp needs. tamp_require looks for one; tamp_required stops with a list of all that are missing, by the names of
# Debian's packages.
macro(tamp_require name package)  # and what else find_package takes: a version, COMPONENTS
  find_package(${name} ${ARGN} QUIET)
  if(NOT ${name}_FOUND)
    list(APPEND tamp_missing_libraries "${name}")
    list(APPEND tamp_missing_packages "${package}")
  endif()
endmacro()

function(tamp_required)
  if(tamp_missing_libraries)
    list(JOIN tamp_missing_libraries ", " libraries)
    list(JOIN tamp_missing_packages " " packages)
    message(FATAL_ERROR "${libraries}: not found, or too old. On Debian 12: apt install ${packages}. Versions are in docs/dependencies.md.")
  endif()
endfunction()
