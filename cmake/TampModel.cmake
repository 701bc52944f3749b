# tamp_add_model: an ONNX model as a library target of your own CMake project.
#
#   include(<tamp>/cmake/TampModel.cmake)
#   tamp_add_model(resnet50 MODEL resnet50.onnx [VDEVICE h200|FILE.json] [PRECISION tf32] [POLICY best] [EXECUTION persistent]
#                  [RECORDS FILE|none] [DIMS batch=8 ...] [EMBED_WEIGHTS])
#   target_link_libraries(my_program PRIVATE resnet50)      # and #include "resnet50.h"
#
# `tamp compile` runs when CMake configures, again whenever one of the files that it reads changes (the model, its external weights, a
# vDevice or records in a file) or tamp itself does; files that come out the same keep their time stamps, so nothing is built twice.
# TAMP_EXECUTABLE names the program if it is not in PATH.
include_guard(GLOBAL)

# The files behind the colon of what `tamp compile --depfile` wrote, as a list.
function(_tamp_read_depfile depfile result)
  file(READ ${depfile} text)
  string(REGEX REPLACE "\n$" "" text "${text}")
  string(REPLACE " \\\n  " ";" files "${text}")
  list(POP_FRONT files)
  string(REPLACE "\\ " " " files "${files}")
  string(REPLACE "\\#" "#" files "${files}")
  string(REPLACE "$$" "$" files "${files}")
  set(${result} "${files}" PARENT_SCOPE)
endfunction()

function(tamp_add_model name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "EMBED_WEIGHTS" "MODEL;VDEVICE;PRECISION;POLICY;EXECUTION;RECORDS" "DIMS")
  if(NOT arg_MODEL OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tamp_add_model(${name}): expected MODEL FILE.onnx and known options, found: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  find_program(TAMP_EXECUTABLE tamp REQUIRED)
  get_filename_component(model ${arg_MODEL} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/tamp/${name})
  set(fresh ${folder}.new)

  set(options --name ${name})
  foreach(option VDEVICE PRECISION POLICY EXECUTION RECORDS)
    if(arg_${option})
      string(TOLOWER ${option} flag)
      if(option MATCHES "VDEVICE|RECORDS" AND EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${arg_${option}})
        set(arg_${option} ${CMAKE_CURRENT_SOURCE_DIR}/${arg_${option}})
      endif()
      list(APPEND options --${flag} ${arg_${option}})
    endif()
  endforeach()
  foreach(dim IN LISTS arg_DIMS)
    list(APPEND options --dim ${dim})
  endforeach()
  if(arg_EMBED_WEIGHTS)
    list(APPEND options --embed-weights)
  endif()

  # Before anything can fail: a mended model is then noticed as well.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${model} ${TAMP_EXECUTABLE})
  file(REMOVE_RECURSE ${fresh})
  execute_process(COMMAND ${TAMP_EXECUTABLE} compile ${model} -o ${fresh} --depfile ${folder}.d -q ${options}
    RESULT_VARIABLE failed ERROR_VARIABLE message)
  if(failed)
    message(FATAL_ERROR "tamp_add_model(${name}): ${message}")
  endif()
  file(MAKE_DIRECTORY ${folder})
  file(GLOB files RELATIVE ${fresh} ${fresh}/*)
  foreach(file IN LISTS files)
    file(COPY_FILE ${fresh}/${file} ${folder}/${file} ONLY_IF_DIFFERENT)
  endforeach()
  file(REMOVE_RECURSE ${fresh})
  _tamp_read_depfile(${folder}.d read)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${read})
  add_subdirectory(${folder} ${folder}/build)
endfunction()
